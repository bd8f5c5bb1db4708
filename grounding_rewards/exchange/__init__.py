"""The films and boxes of an evaluation in the formats of other tools, one module each.

Every function takes the films that `grounding-rewards evaluate` writes, as `AnsweredFilm`, so that each tool shows the
boxes that were scored.
"""
