"""The images and boxes of an evaluation in the formats of other tools, one module each.

Every function takes the images that `grounding-rewards evaluate` writes, as `Prediction`, so that each tool shows
the boxes that were scored.
"""
