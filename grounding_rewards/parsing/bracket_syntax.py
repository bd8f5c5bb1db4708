"""Boxes outside JSON: `[x1, y1, x2, y2]`, `(x1,y1),(x2,y2)`, `<loc_1><loc_2><loc_3><loc_4>`, in tags, in prose or bare.

One scanner reads them all. It cuts the text into marks (tags, groups of numbers, runs of coordinate tokens) and walks
over them once; how families differ is data in their `BoxFormat`.
"""

from __future__ import annotations

import functools
import html
import itertools
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from grounding_rewards.boxes import patch_index_to_norm1
from grounding_rewards.parsing.formats import WORDS
from grounding_rewards.parsing.no_finding import asserts_finding
from grounding_rewards.parsing.numbers import NOTHING, looks_numeric, ordered_box_or_reason, split_numbers
from grounding_rewards.parsing.results import MAX_BOXES, MAX_GROUPS, MAX_LIST, BoxCollector

if TYPE_CHECKING:
    from grounding_rewards.parsing.formats import BoxFormat

#: The role of each tag, whatever the family: fine-tuned models and servers mix them.
TAG_ROLES: dict[str, str] = {tag: role for role, tags in WORDS["tags"].items() for tag in tags}
_COMMAS = (",", "，")
_NUMBERS = frozenset({"run", "group"})
_BETWEEN_CORNERS = " \t\n,，"
_BEFORE_LABEL = " \t\r\n,.;:-，。；：、[]()*`\\&"
_AFTER_LABEL = " \t\r\n,;:-，；：、[(*`\\&"
#: How many characters may stand between a bracket and what it encloses.
_NEAR = 8
# Digits of a coordinate token that are read as a number; `_ENDLESS` stands for one with more.
_MAX_DIGITS, _ENDLESS = 16, 10**16
_TAG = re.compile(r"<[^<>]{0,80}>")


class _Mark(NamedTuple):
    """A tag, coordinate tokens, or brackets around numbers.

    kind: `label`, `open_label`, `label_end`, `box`, `box_end`, `named`, `named_end`, `relation`, `shape`, `shape_end`,
        `other` for tags; `run` for coordinate tokens, `group` for brackets.
    text: the tag or the tokens; for a label, its words.
    opening, closed, lists: for a group, its opening bracket, whether it is closed, and the lists of tokens in it.
    """

    kind: str
    start: int
    end: int
    text: str = ""
    opening: str = ""
    closed: bool = False
    lists: Sequence[list[str]] = ()


@functools.cache
def _mark_pattern(tokens: tuple[str, ...]) -> re.Pattern[str]:
    """The pattern of runs of the format's coordinate tokens, of tags and of groups in brackets."""
    # The content of a group holds no bracket and no `<`, and tags are short, so all matches together read each
    # character a bounded number of times.
    # Without coordinate tokens a run is what never matches.
    run = rf"(?:<(?:{'|'.join(map(re.escape, tokens))})\d+>[ \t\n]*)+" if tokens else "(?!)"
    # An attribute in quotes may hold a ">".
    named = r"</?(?:point_box|collection)\b(?:[^<>\"]|\"[^\"<]*\")*>"
    # A group ends with a closing bracket, or before the tag that closes its box, or else where its content ends.
    group_end = r"(?P<closing>[\])］）])|(?=(?P<box_end></b?box>))|"
    group = rf"(?P<opening>[\[(［（])(?P<content>[^\[\]()［］（）<]*)(?:{group_end})"
    return re.compile(rf"(?P<run>{run})|(?P<named>{named})|(?P<tag><[^<>]{{1,80}}>)|(?P<group>{group})")


def scan_brackets(text: str, fmt: BoxFormat, collector: BoxCollector) -> None:
    """Add every box in brackets, tags and coordinate tokens to the collector.

    Example:
        >>> from grounding_rewards.parsing import get_box_format
        >>> collector = BoxCollector()
        >>> scan_brackets("A mass<loc_1><loc_2><loc_3><loc_4>", get_box_format("florence-2"), collector)
        >>> collector.coords, collector.labels
        ([1.0, 2.0, 3.0, 4.0], ['A mass'])
    """
    matches = list(itertools.islice(_mark_pattern(fmt.syntax.tokens).finditer(text), MAX_GROUPS + 1))
    if not matches:
        collector.cut_off |= _ends_in_tag(text, fmt)
        return
    marks = [mark for mark in map(_mark_at, matches[:MAX_GROUPS]) if mark is not None]
    labelled = _with_labels(marks, text)
    # "<ref>no": the text breaks off in a label, whose words are no statement.
    collector.cut_off |= bool(labelled) and labelled[-1].kind == "open_label" and len(matches) <= MAX_GROUPS
    _Scan(text, fmt, collector).walk(labelled)
    if collector.met_nothing and len(labelled) < len(marks):
        # All numbers stood in what was taken for labels: read those.
        _Scan(text, fmt, collector).walk([mark for mark in marks if mark.kind in _NUMBERS])
    if len(matches) > MAX_GROUPS:
        collector.reject("too_long")


#: Numbers, placeholders (x1) and NaN hold one of these; brackets without any of them hold words.
_MAY_BE_NUMBERS = re.compile(r"[\dxyXY]|nan|inf", re.IGNORECASE)
_SEPARATORS = " \t\r\n,，、;；"


def _mark_at(match: re.Match[str]) -> _Mark | None:
    """The mark at a match of :func:`_mark_pattern`; None for brackets around prose."""
    if match.lastgroup == "group":
        return _bracket_mark(match)
    start, end = match.span()
    tag = match[0]
    if match.lastgroup == "run":
        # Coordinate tokens, which look like tags.
        return _Mark("run", start, end, tag)
    # Some write a list in angle brackets, "<1, 2, 3, 4>", which the pattern takes for a tag.
    if tag[1] in "0123456789-." and "," in tag:
        return _Mark("group", start, end, opening="<", closed=True, lists=split_numbers(tag[1:-1]))
    if match.lastgroup == "named":
        return _Mark("named_end" if tag[1] == "/" else "named", start, end, tag)
    # A point with its coordinates in attributes is a shape of its own; without them its tag stands in `TAG_ROLES`.
    if tag.startswith("<point") and "=" in tag:
        return _Mark("shape", start, end, "<point>")
    return _Mark(TAG_ROLES.get(tag.casefold(), "other"), start, end, tag)


def _bracket_mark(match: re.Match[str]) -> _Mark | None:
    """The group at a match of brackets; None where they hold prose. Empty brackets are a group without lists."""
    opening, content, closing = match["opening"], match["content"], match["closing"]
    # Words; but nothing, or only commas between nothing, is no prose.
    if not _MAY_BE_NUMBERS.search(content) and content.strip(_SEPARATORS):
        return None
    lists = split_numbers(content)
    if closing is None:
        # The tag closes whole boxes too: "[1, 2, 3, 4</box>".
        closed = match["box_end"] is not None and bool(lists) and all(len(tokens) == 4 for tokens in lists)
    else:
        # A wrong bracket closes numbers, "[1, 2, 3, 4)", while empty brackets that do not fit, "[)", state nothing.
        closed = bool(lists) or closing in ("]", "］")
    mark = _Mark("group", *match.span(), opening=opening, closed=closed, lists=lists)
    if not lists or any(_is_attempt(tokens, opening) for tokens in lists):
        return mark
    # A number in brackets that are never closed, "[12", may be a box that the text breaks off in.
    return mark if not closed and looks_numeric(lists[0][0]) else None


def _is_attempt(tokens: list[str], opening: str) -> bool:
    """Whether tokens in brackets may be meant as a box: all are numeric, or one of them in square brackets.

    A single number is prose, "[3] nodules".
    """
    if len(tokens) < 2:
        return False
    are_numeric = map(looks_numeric, tokens)
    return all(are_numeric) if opening in "(（" else any(are_numeric)


def _with_labels(marks: Sequence[_Mark], text: str) -> list[_Mark]:
    """The marks, with each label as one mark that holds its words; a label without an end is an `open_label`.

    Numbers in brackets are part of a label, coordinate tokens end it.
    """
    labelled = []
    index = 0
    while index < len(marks):
        mark = marks[index]
        index += 1
        if mark.kind == "label":
            # Up to the next meaningful tag, so an unclosed label costs no more than its own length.
            end_index = index
            while end_index < len(marks) and marks[end_index].kind in ("group", "other"):
                end_index += 1
            if end_index < len(marks) and marks[end_index].kind in ("label_end", "box", "run"):
                label_end = marks[end_index].start
                mark = mark._replace(end=label_end, text=text[mark.end : label_end])
                index = end_index
            else:
                mark = mark._replace(kind="open_label")
        labelled.append(mark)
    return labelled


@dataclass
class _Scan:
    """One walk over the marks of a text.

    What holds at the mark that is read:

    label: that of the last label tag or box, which further boxes share.
    words: those since the last box: the label of the next one where labels have no tags.
    corners: groups with one point each, which may be corners of a box that is not complete.
    box_tag: the open tag around boxes.
    box_tag_is_bare: no brackets or tokens stand in it so far, so that its numbers may be bare: "<box>1 2 3 4</box>".
    box_tag_may_close: it stands inside another, and may be meant to close that: "<box>1 2 3 4<box>".
    met_before_box: how many boxes and broken boxes there were before it.
    in_relation: within a predicate, whose boxes repeat those of its subject and object, and do not count.
    in_shape: within the tags of a point, a polygon or a mask, whose numbers are no box.
    collection: the label of the collection around the boxes.
    numbers_end: the end of the last brackets or tokens; -1 before any.
    """

    text: str
    fmt: BoxFormat
    collector: BoxCollector
    label: str | None = None
    words: str = ""
    corners: list[_Mark] = field(default_factory=list)
    box_tag: _Mark | None = None
    box_tag_is_bare: bool = False
    box_tag_may_close: bool = False
    met_before_box: int = 0
    in_relation: bool = False
    in_shape: bool = False
    collection: str | None = None
    numbers_end: int = -1

    def walk(self, marks: list[_Mark]) -> None:
        """Add the boxes of these marks to the collector."""
        kinds = {mark.kind for mark in marks}
        # Models that write tags around boxes where JSON (`keyed`) was asked for, such as MedMO, name the finding before
        # the tags.
        label_may_be_before = self.fmt.untagged_label == "before" or (self.fmt.syntax.keyed and "box" in kinds)
        label_is_before = label_may_be_before and "label" not in kinds
        label_is_after = self.fmt.untagged_label == "after"
        next_numbers = _next_numbers(marks, len(self.text)) if label_is_after else []
        end = 0
        for index, mark in enumerate(marks):
            if self.collector.full:
                return
            gap = self.text[end : mark.start]
            end = mark.end
            is_tag = mark.kind not in _NUMBERS
            words = ""
            # Bare text between box tags is a box or nothing, never a label.
            if label_is_before and not (is_tag and self.box_tag is not None):
                words = _words(gap)
            # Corner points of one box have neither words nor tags between them.
            if words or is_tag:
                self._end_corners()
            # Words wait for the next box: `_own_label` uses them up.
            self.words = words or self.words
            if is_tag:
                self._read_tag(mark)
            elif not self.in_relation and not self.in_shape:
                self.box_tag_is_bare = False
                self.numbers_end = mark.end
                if label_is_after:
                    text_after = self.text[mark.end : next_numbers[index]].lstrip()
                    self.label = _clean(_LABEL_END.split(text_after, 1)[0])
                self._read_numbers(mark)
        self._end_corners()
        self._end_text()

    def _end_text(self) -> None:
        """Read what an open box tag holds, and notice where the text breaks off."""
        if self.box_tag is not None:
            content, bracket, _ = self.text[self.box_tag.end :].partition(">")
            if self.box_tag_is_bare and bracket:
                # "<box>1 2 3 4>": of the closing tag only its bracket is left.
                self._read_bare(content)
            elif not self.box_tag_may_close or any(map(str.isdecimal, content)):
                # The tag is without its end, unless it is itself the end of another, with no numbers behind it.
                self.collector.cut_off = True
        # A comma behind the last box announces another one. Where there were no numbers, `numbers_end` is -1.
        after_numbers = self.text[self.numbers_end :].strip(" \t\r\n]") if self.numbers_end >= 0 else ""
        self.collector.cut_off |= after_numbers in _COMMAS or _ends_in_tag(self.text, self.fmt)

    def _read_tag(self, mark: _Mark) -> None:
        """Keep what a tag says of the numbers behind it, and end the box tag that it closes."""
        is_in_box_tag = self.box_tag is not None
        if mark.kind in _ENDS_BOX:
            self._close_box_tag(mark.start)
        if mark.kind == "label":
            # It begins a subject or an object, so that the relation before it is over.
            self.label, self.in_relation = _clean(mark.text), False
        elif mark.kind == "label_end":
            # MAIRA-2 writes a finding that it does not locate as a label without a box.
            if mark.text.casefold() == "</obj>" and "unboxed_label" in self.fmt.negatives:
                self.collector.stated_empty = True
        elif mark.kind == "named":
            self._read_named(mark.text)
        elif mark.kind == "named_end":
            if mark.text.startswith("</collection"):
                self.collection = None
            self.label = self.collection
        elif mark.kind == "shape":
            self.in_shape = True
            # A segmentation stands beside a box, and is no failed one.
            if mark.text != "<seg>":
                self._reject("point" if mark.text == "<point>" else "quad")
        self.in_relation |= mark.kind == "relation"
        self.in_shape &= mark.kind != "shape_end"
        if mark.kind == "box" or mark.text.startswith("<point_box"):
            self.box_tag, self.box_tag_is_bare = mark, True
            # "<box>1 2 3 4<box>": the second tag may be meant to close the first.
            self.box_tag_may_close = is_in_box_tag
            self.met_before_box = self.collector.met

    def _read_named(self, tag: str) -> None:
        """Take the label in the attribute `mention` of a tag; a collection's holds for all boxes in it."""
        mention = _MENTION.search(tag)
        self.label = _clean(html.unescape(mention["label"])) if mention else self.collection
        if tag.startswith("<collection"):
            self.collection = self.label

    def _close_box_tag(self, end: int) -> None:
        """End the open box tag, if there is one, at `end`, and read what it encloses if that was not read yet.

        Brackets and tokens are read where they stand. A tag without any is bare, "<box>1 2 3 4</box>": its content is
        read here. Within a predicate (`in_relation`) nothing counts, as its boxes repeat others.
        """
        if self.box_tag is not None and not self.in_relation:
            content = self.text[self.box_tag.end : end]
            brackets_gave_nothing = self.collector.met == self.met_before_box
            if self.box_tag_is_bare:
                self._read_bare(content)
            elif brackets_gave_nothing and any(map(str.isdecimal, content)):
                # "<box>[[7]]</box>": elsewhere a number alone in brackets is prose.
                self._reject("wrong_count")
            elif brackets_gave_nothing and any(map(str.isalpha, content)):
                # "<box>[[none]]</box>": the outer bracket was read as a group without numbers.
                self._read_bare(content)
        self.box_tag = None

    def _read_bare(self, content: str) -> None:
        """Read text between box tags that has no box in brackets: numbers, or words that say that there is nothing."""
        if content.strip(" .\n[]").casefold() in NOTHING:
            self.collector.stated_empty = True
            # "<ref>large left effusion</ref><box>none</box>" says both.
            self.collector.asserted |= asserts_finding(self._own_label() or "")
            return
        lists = [tokens for tokens in split_numbers(content) if any(map(looks_numeric, tokens))]
        for tokens in lists:
            self._add(tokens)
        if not lists:
            self.collector.note_words(self._own_label())

    def _read_numbers(self, mark: _Mark) -> None:
        """Add the boxes of a mark with numbers; a group with one point is kept, as the next may be the other corner."""
        if mark.lists and not mark.closed:
            self._read_unclosed(mark)
            return
        # One list of two numbers.
        is_point = mark.opening != "<" and [len(tokens) for tokens in mark.lists] == [2]
        if not is_point or not self._joins(mark):
            self._end_corners()
        if is_point:
            self.corners.append(mark)
        elif mark.kind == "run":
            self._read_run(mark)
        elif mark.lists:
            for tokens in mark.lists:
                self._add(tokens)
        else:
            # Empty brackets: "[]" says that there is nothing, and "[" that the text breaks off. "()" and "[)" say
            # neither.
            self.collector.stated_empty |= mark.closed and mark.opening in "[［"
            self.collector.cut_off |= not mark.closed and mark.end == len(self.text) and self.text[-1] not in ")）"

    def _joins(self, mark: _Mark) -> bool:
        """Whether a corner point belongs to those before it: a comma or blanks stand between, no line break alone."""
        if not self.corners or mark.opening != self.corners[-1].opening:
            return False
        gap = self.text[self.corners[-1].end : mark.start]
        return not gap.strip(_BETWEEN_CORNERS) and ("," in gap or "，" in gap or "\n" not in gap)

    def _read_unclosed(self, mark: _Mark) -> None:
        """Read the complete lists of a group that breaks off, unless it is prose."""
        # Two numbers or more; one behind a corner, "(1, 2), (3"; or one in square brackets, "[12".
        is_attempt = any(_is_attempt(tokens, mark.opening) for tokens in mark.lists)
        is_after_corner = bool(self.corners) and looks_numeric(mark.lists[0][0])
        is_square = mark.opening in "[［" and any(map(looks_numeric, mark.lists[0]))
        if not (is_attempt or is_after_corner or is_square):
            return
        self._end_corners(cut_point=mark if self._joins(mark) else None)
        # The last list is the one that breaks off.
        for tokens in mark.lists[:-1]:
            self._add(tokens)
        self._reject("unclosed")
        self.collector.cut_off |= mark.end == len(self.text)

    def _end_corners(self, cut_point: _Mark | None = None) -> None:
        """Make boxes of `corners`, the points in a row: two are a box, four are a quadrilateral.

        Points that are written in pairs, "(1,2),(3,4) (5,6),(7,8)", are one box a pair, even if the last pair breaks
        off. `cut_point` is the point in which the text breaks off, where it belongs to those before it.
        """
        corners, self.corners = self.corners, []
        if not corners:
            return
        points = corners if cut_point is None else [*corners, cut_point]
        gaps = [self.text[point.end : next_point.start] for point, next_point in itertools.pairwise(points)]
        # The gaps within pairs, every other one, hold other characters than those between pairs.
        are_pairs = len(points) > 2 and set(gaps[0::2]).isdisjoint(gaps[1::2])
        tokens = [token for corner in corners[:MAX_BOXES] for token in corner.lists[0]]
        if corners[0].opening in "[［" and not self._enclosed(corners):
            # "[1, 2], [3, 4]" are points; "[[1, 2], [3, 4]]" is a box.
            for _ in corners:
                self._reject("point")
        elif are_pairs or (len(corners) == 2 and cut_point is None):
            # Two points, four numbers, are a box.
            complete = len(tokens) // 4 * 4
            for start in range(0, complete, 4):
                self._add(tokens[start : start + 4])
            if complete < len(tokens):
                # A point is left over.
                ends_text = corners[-1].end == len(self.text)
                self._reject("unclosed" if ends_text else "point")
                self.collector.cut_off |= ends_text
        elif cut_point is None:
            # One point or more than two: no box, for the reason that their numbers give.
            self._add(tokens[:MAX_LIST])

    def _enclosed(self, corners: list[_Mark]) -> bool:
        """Whether lists of two numbers stand in a list of their own: "[[1, 2], [3, 4]]"."""
        start, end = corners[0].start, corners[-1].end
        before = self.text[max(0, start - _NEAR) : start].rstrip()
        after = self.text[end : end + _NEAR].lstrip()
        return before.endswith(("[", "［")) and after.startswith(("]", "］"))

    def _read_run(self, mark: _Mark) -> None:
        """Add the boxes of coordinate tokens in a row: four are a box, or two, the first and the last cell of a grid.

        A row that is no whole number of boxes, or that may be another shape, becomes broken boxes.
        """
        # Of each token the digits: ["1", "22"] of "<loc_1><loc_22>".
        tokens = _TOKEN_NUMBER.findall(mark.text)
        # Cells on each side of the grid, 0 for coordinates.
        patches = self.fmt.syntax.patches
        largest = math.inf if self.fmt.largest is None else self.fmt.largest
        # Cells are numbered from 0. A coordinate may be one more than the largest, for the far edge of the image.
        limit = patches**2 - 1 if patches else largest + 1
        box_count, remainder = divmod(len(tokens), 2 if patches else 4)
        # The last box lacks tokens, and the text ends with the row.
        cut_off = remainder > 0 and mark.end == len(self.text)
        # `int` refuses endless numbers: in the place of each stands one that is too large for any image.
        numbers = [_ENDLESS if len(token) > _MAX_DIGITS else int(token) for token in tokens]
        if max(numbers) > limit:
            # All boxes of the row are broken, and a row too short for one box is a broken one.
            for _ in range(max(box_count, 1)):
                self._reject("number_too_large")
        elif patches:
            # The two cells are the one box of an answer.
            if len(tokens) == 2:
                # As tokens, which is what every box is read from.
                self._add([repr(value) for value in patch_index_to_norm1(numbers[0], numbers[1], patches)])
            elif not cut_off:
                self._reject("wrong_count")
        else:
            # Eight numbers are two boxes or one quadrilateral, and where the text breaks off fewer may be the beginning
            # of either. The corners of a quadrilateral go around it: read as two boxes, of its first two corners and of
            # its last two, one of them has its second corner left of or above its first.
            starts = range(0, 4 * box_count, 4)
            in_order = all(numbers[k] <= numbers[k + 2] and numbers[k + 1] <= numbers[k + 3] for k in starts)
            if (remainder and not cut_off) or (len(tokens) == 8 and not in_order):
                # No whole number of boxes, or a quadrilateral: one broken box, whose reason is told by how many numbers
                # there are, up to more than any shape has.
                self._add(tokens[:MAX_LIST])
            elif in_order or not cut_off:
                # The complete boxes, unless they may be the beginning of a quadrilateral.
                for start in starts:
                    self._add(tokens[start : start + 4])
        if cut_off:
            # The box in which the text breaks off.
            self._reject("unclosed")
            self.collector.cut_off = True

    def _add(self, tokens: list[str]) -> None:
        """Add the box of these tokens with its label, or the reason why they are none."""
        self.collector.take(ordered_box_or_reason(tokens, self.fmt.order), self._own_label())

    def _reject(self, reason: str) -> None:
        """Add a broken box with its label."""
        self.collector.reject(reason, self._own_label())

    def _own_label(self) -> str | None:
        """The label of the next box: the words before it, else that of the box before."""
        if self.words:
            self.label = self.words
            self.words = ""
        return self.label


# The tags that end what a box tag encloses.
_ENDS_BOX = frozenset({"label", "label_end", "box", "box_end", "named_end"})


def _next_numbers(marks: Sequence[_Mark], text_end: int) -> list[int]:
    """The position, for each mark, where the next numbers behind it begin, or that of the end of the text."""
    starts = []
    next_start = text_end
    for mark in reversed(marks):
        starts.append(next_start)
        if mark.kind in _NUMBERS:
            next_start = mark.start
    return starts[::-1]


_MENTION = re.compile(r'\bmention="(?P<label>[^"]*)"')
_TOKEN_NUMBER = re.compile(r"(\d+)>")


def _clean(label: str) -> str | None:
    """The label without tags and blanks around it; None where nothing is left."""
    return _TAG.sub("", label).strip() or None


def _words(gap: str) -> str:
    """The label in the text before a box: its last line, without an "and" or the like in front."""
    if not gap.strip(_BEFORE_LABEL):
        # Punctuation alone.
        return ""
    last_line = gap.lstrip(_BEFORE_LABEL).rstrip(_AFTER_LABEL).rpartition("\n")[2]
    return _TAG.sub("", _JOINING.sub("", last_line)).strip()


#: "nodules [..] and [..]", "\\boxed{[..]}"
_JOINING = re.compile(r"^(?:(?:and|or|with)(?:\s|$)|\\?boxed\{?)")
_LABEL_END = re.compile(r"[;\n]")
_TAG_STARTS = frozenset(tag[:length] for tag in TAG_ROLES for length in range(2, len(tag)))
_LONGEST_TAG = 40
_WITH_ATTRIBUTES = ("<point_box", "<collection", "<boxes")
_closed_tag = re.compile(r'(?:[^>"]|"[^"]*")*>').match


def _ends_in_tag(text: str, fmt: BoxFormat) -> bool:
    """Whether the text breaks off inside a tag or a coordinate token: "<bo", "<loc_12"."""
    start = text.rfind("<")
    tail = text[start:].rstrip() if start >= 0 else ""
    # Tags with attributes are longer than others, and an attribute may hold a ">".
    if tail.startswith(_WITH_ATTRIBUTES) and not _closed_tag(tail):
        return True
    if not tail or len(tail) > _LONGEST_TAG or ">" in tail:
        return False
    if tail.casefold() in _TAG_STARTS:
        return True
    token_name = tail[1:].rstrip("0123456789")
    if tail[-1].isdecimal():
        return token_name in fmt.syntax.tokens
    # "<lo": not even the name of the token is complete.
    return any(name.startswith(token_name) for name in fmt.syntax.tokens)


_AROUND_LINE = _BEFORE_LABEL + "{}$"
_LINE = re.compile(r"(?:[^\n:：\d]{0,60}[:：])?(?P<numbers>[^\n:：]*)")


def scan_lines(text: str, fmt: BoxFormat, collector: BoxCollector) -> None:
    """Add the boxes on lines of their own, four numbers with at most a name and a colon before them, to the collector.

    Example:
        >>> from grounding_rewards.parsing import get_box_format
        >>> collector = BoxCollector()
        >>> scan_lines("A mass:\\n120, 340, 900, 400", get_box_format("qwen3-vl"), collector)
        >>> collector.coords
        [120.0, 340.0, 900.0, 400.0]
    """
    for line in itertools.islice(filter(None, text.splitlines()), MAX_BOXES):
        # The name and the colon, if there are any, and the rest; another colon makes the line prose.
        line_match = _LINE.fullmatch(line.strip(_AROUND_LINE))
        if line_match is None:
            continue
        for tokens in split_numbers(line_match["numbers"]):
            if len(tokens) == 4 and all(map(looks_numeric, tokens)):
                collector.take(ordered_box_or_reason(tokens, fmt.order))


_COORDS = re.compile(r"""<boxes\s{1,8}coords\s{0,8}=\s{0,8}["'](?P<numbers>[^"'<>]*)["'][^<>]{0,80}>(?P<label>[^<]*)""")
_HTML_BOX = re.compile(r"""data-bbox\s{0,8}=\s{0,8}["'](?P<numbers>[^"'<>]{0,200})["']""")


def scan_attributes(text: str, fmt: BoxFormat, collector: BoxCollector) -> None:
    """Add the boxes in attributes of tags to the collector.

    In HTML they are `data-bbox`; MolmoAct2's `<boxes coords="…">label</boxes>` holds the number of the image, then for
    each box its own number and four coordinates.

    Example:
        >>> from grounding_rewards.parsing import get_box_format
        >>> collector = BoxCollector()
        >>> scan_attributes('<p data-bbox="1 2 3 4">mass</p>', get_box_format("qwen2.5-vl"), collector)
        >>> scan_attributes('<boxes coords="1 1 5 6 7 8">mass</boxes>', get_box_format("molmoact2"), collector)
        >>> collector.coords, collector.labels
        ([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0], [None, 'mass'])
    """
    if "data-bbox" in text:
        for match in itertools.islice(_HTML_BOX.finditer(text), MAX_GROUPS):
            for tokens in split_numbers(match["numbers"]):
                collector.take(ordered_box_or_reason(tokens, fmt.order))
    if "<boxes" not in text:
        return
    for match in itertools.islice(_COORDS.finditer(text), MAX_GROUPS):
        # One for the image, and five for each box.
        tokens = match["numbers"].replace(",", " ").split(maxsplit=1 + 5 * MAX_BOXES)
        label = _clean(match["label"])
        if len(tokens) < 6 or len(tokens) % 5 != 1:
            collector.reject("wrong_count")
            continue
        for start in range(1, len(tokens), 5):
            # The first of the five is the box's own number.
            collector.take(ordered_box_or_reason(tokens[start + 1 : start + 5], fmt.order), label)
    collector.cut_off |= _ends_in_tag(text, fmt)
