"""Scripted answers, honest ones of stated quality and dishonest ones; each is a function from an image to an answer,
which is written as text in a model's box format, with boxes that may be broken.

The kind of an answer is a rule for its reward:

* `honest`: it looks, and its quality is in its name. The others are compared with these.
* `adds`: an honest answer with something wrong added. It must earn less than the honest answer.
* `changes`: an honest answer, changed in a way that should not help. It must not earn more than the honest answer.
* `blind`: it does not look at the image. It must not earn more than any honest one.
* `unread`: it has nothing that can be read. It must earn nothing, also on an image without findings.
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import NamedTuple

import numpy as np

from grounding_rewards.audit.audit_images import AuditImage, Size, cut_box, stray_box
from grounding_rewards.boxes import pixel_to_frame, space_frame
from grounding_rewards.common.numeric import Array
from grounding_rewards.overlap import pairwise_iou
from grounding_rewards.parsing import BoxFormat
from grounding_rewards.parsing.write import write_answer

# A number of a box in the template of a format: `{0}`, or `{0:0>4}`.
_NUMBER = re.compile(r"\{(\d)([^}]*)\}")


def _swap_corners(template: str) -> str:
    """The template with the second half of the numbers before the first half."""
    count = len(_NUMBER.findall(template))
    # Of four numbers {0} becomes {2}, and {2} becomes {0}.
    return _NUMBER.sub(lambda field: f"{{{(int(field[1]) + count // 2) % count}{field[2]}}}", template)


#: Ways to break a written box: functions that change the template of a box.
BREAKS: dict[str, Callable[[str], str]] = {
    "a number missing": lambda template: re.sub(r"[,\s]*\{[13][^}]*\}(?!.*\{)", "", template),
    "a number too many": lambda template: re.sub(r"(\{[13][^}]*\})(?!.*\{)", r"\1, 7", template),
    "not a number": lambda template: re.sub(r"\{0[^}]*\}", "NaN", template),
    "huge": lambda template: re.sub(r"\{[12][^}]*\}", "9" * 400, template, count=1),
    "words": lambda template: _NUMBER.sub("left", template),
    "swapped corners": _swap_corners,
}


class Item(NamedTuple):
    """One box of an answer.

    Attributes:
        box: ``(4,)`` xyxy in pixels of the image.
        label: its finding.
        broken: a key of :data:`BREAKS`; empty for a box that is whole.
    """

    box: Array
    label: str
    broken: str = ""


@dataclass(frozen=True)
class Reply:
    """A script's answer to one image.

    Attributes:
        items: the boxes, in the order in which they are written.
        edit: changes the written text.
    """

    items: tuple[Item, ...] = ()
    edit: Callable[[str], str] = str


def write(answer: Reply, size: Size, fmt: BoxFormat) -> str:
    """The text of an answer, as a model of this box format writes it.

    Args:
        answer: boxes and what is wrong with them.
        size: of the image.
        fmt: how the model writes boxes.

    Example:
        >>> from grounding_rewards.parsing import get_box_format
        >>> items = (Item(np.array([0.0, 0.0, 50.0, 50.0]), "mass", "a number missing"),)
        >>> write(Reply(items), Size(100, 100, 100, 100), get_box_format("internvl"))
        '<ref>mass</ref><box>[[0, 0, 500]]</box>'
    """
    boxes = np.array([item.box for item in answer.items], dtype=np.float64).reshape(-1, 4)
    boxes_in_space = pixel_to_frame(boxes, space_frame(fmt.space, *size)).tolist()
    if not any(item.broken for item in answer.items):
        return answer.edit(write_answer(boxes_in_space, [item.label for item in answer.items], fmt))
    layout = fmt.layout
    texts = []
    for item, box in zip(answer.items, boxes_in_space, strict=True):
        # Boxes may be broken in different ways: each is written alone, by a template of its own, and then joined.
        item_layout = layout._replace(answer="{items}", box=_box_template(item.broken, fmt))
        texts.append(write_answer([box], [item.label], replace(fmt, layout=item_layout)))
    return answer.edit(layout.answer.format(items=layout.between_items.join(texts)))


def _box_template(broken: str, fmt: BoxFormat) -> str:
    """The template of a box in a format, broken in the way of a key of :data:`BREAKS`; whole for an empty key."""
    if not broken:
        return fmt.layout.box
    has_marks = fmt.syntax.keyed or "<box>" in fmt.layout.bare_item
    if broken == "words" and not has_marks:
        # Without the key or tag of a box only numbers show that there is one: with words it would be prose, unbroken.
        broken = "a number missing"
    return BREAKS[broken](fmt.layout.box)


HONEST, ADDS, CHANGES, BLIND, UNREAD = KINDS = ("honest", "adds", "changes", "blind", "unread")

#: Qualities of honest answers: IoU of a box, a little above thresholds; share of findings; false boxes per image.
IOUS = (0.55, 0.75, 0.9)
RECALLS = (1.0, 0.5)
FALSE_BOXES = (0.0, 0.5)

# From an image and a right box on it to the boxes that are added for this one.
_Extra = Callable[[AuditImage, Item], Iterable[Item]]


class ScriptedAnswer(NamedTuple):
    """A script, which answers every image.

    Attributes:
        name: for tables.
        kind: the rule for its reward, see the top of this module.
        idea: why it may be paid, in one line.
        answer: its function from an image to an answer.
        base: the honest script that it must not beat; empty if it is compared with all or none.
        image_set: `small` where it needs images with small findings; empty for the images as they are.
    """

    name: str
    kind: str
    idea: str
    answer: Callable[[AuditImage, BoxFormat], Reply]
    base: str = ""
    image_set: str = ""


def honest_name(iou: float, recall: float, false_boxes: float) -> str:
    """The name of an honest answer.

    Example:
        >>> honest_name(0.75, 0.5, 0.5)
        'honest: IoU 0.75, half found, 0.5 false boxes'
    """
    share = {1.0: "all found", 0.5: "half found"}.get(recall, f"{recall:g} found")
    addition = f", {false_boxes:g} false boxes" if false_boxes else ""
    return f"honest: IoU {iou:g}, {share}{addition}"


#: The name of the honest answer from which most dishonest ones are made.
RIGHT = honest_name(0.75, 1.0, 0.0)
_GUESS, _LOOSE, _MIXED = "honest: one of two places", "honest: one loose box", "honest: a false box somewhere"
_SIZE, _PARTS, _BESIDE = "honest: one of two sizes", "honest: whole or parts", "honest: beside a small finding"
#: The answer of :func:`never_looking`.
NEVER_LOOKING = "never looking"
#: Scripts that write both of two guesses.
GUESSES = ("both places", "both sizes, nested", "the parts and their union")


# honest


def honest(image: AuditImage, fmt: BoxFormat, *, iou: float, recall: float, false_boxes: float) -> Reply:
    """Find each finding with probability ``recall`` at this IoU; add a false box with probability ``false_boxes``."""
    # Random numbers of its own for each choice, so that answers that differ in one quality are alike in the others.
    place_draw, hit_draw, false_draw = image.draw("place"), image.draw("found"), image.draw("false")
    items = []
    for box, label in zip(image.boxes, image.labels, strict=True):
        if hit_draw.random() < recall:
            items.append(Item(cut_box(box, iou, place_draw), label))
    if false_draw.random() < false_boxes:
        items.append(_stray(image, false_draw))
    return Reply(tuple(items))


# The answer that is named RIGHT.
right_boxes = partial(honest, iou=0.75, recall=1.0, false_boxes=0.0)


def one_guess(image: AuditImage, fmt: BoxFormat) -> Reply:
    """Guess one of two places for each finding: half of the guesses are right."""
    draw = image.draw("guess")
    items = right_boxes(image, fmt).items
    return Reply(tuple(item if draw.random() < 0.5 else _stray(image, draw) for item in items))


def one_loose(image: AuditImage, fmt: BoxFormat) -> Reply:
    """Place the first finding loosely, at an IoU a little above the threshold of 0.5, the others tightly."""
    draw = image.draw("loose")
    items: list[Item] = []
    for box, label in zip(image.boxes, image.labels, strict=True):
        iou = 0.95 if items else 0.55
        items.append(Item(cut_box(box, iou, draw), label))
    return Reply(tuple(items))


def mixed(image: AuditImage, fmt: BoxFormat) -> Reply:
    """Write the right boxes with a false box anywhere among them."""
    draw = image.draw("mixed")
    items = list(right_boxes(image, fmt).items)
    if items:
        items.insert(int(draw.integers(len(items) + 1)), _stray(image, draw))
    return Reply(tuple(items))


def one_size(image: AuditImage, fmt: BoxFormat) -> Reply:
    """Guess one of two sizes for each finding: half of the guesses are right."""
    draw = image.draw("size")
    size_pairs = _two_sizes(image)
    return Reply(tuple(wrong_size if draw.random() < 0.5 else right_size for right_size, wrong_size in size_pairs))


def whole_or_parts(image: AuditImage, fmt: BoxFormat) -> Reply:
    """Write each finding as one box, or as its two halves."""
    draw = image.draw("parts")
    items: list[Item] = []
    for item in right_boxes(image, fmt).items:
        items += [item] if draw.random() < 0.5 else _halves(item)
    return Reply(tuple(items))


def near_miss(image: AuditImage, fmt: BoxFormat) -> Reply:
    """Write boxes of the right size beside their findings, with a gap of a quarter of the width."""
    widths = image.boxes[:, 2] - image.boxes[:, 0]
    # Moved by its width a box would touch the finding.
    distances = 1.25 * widths
    # To the right, or to the left if the image ends there; both x move, and no y.
    moves = np.where(image.boxes[:, 2] + distances <= image.size.width, distances, -distances)
    boxes = image.boxes + moves[:, None] * np.array([1, 0, 1, 0])
    return Reply(tuple(Item(box, label) for box, label in zip(boxes, image.labels, strict=True)))


# beside the right boxes


def _with_extra(image: AuditImage, fmt: BoxFormat, *, extra: _Extra, before: bool) -> Reply:
    """Write the right boxes, and before or after all of them the boxes that `extra` makes from each."""
    items = right_boxes(image, fmt).items
    added: list[Item] = []
    for item in items:
        added += extra(image, item)
    return Reply((*added, *items) if before else (*items, *added))


def _junk(image: AuditImage, item: Item) -> list[Item]:
    """A false box at a random place."""
    return [_stray(image, image.draw(f"junk {item.box.tolist()}"))]


def _grid_of_image(image: AuditImage, item: Item, *, cells: int) -> list[Item]:
    """Boxes with the label of the right one, which cover the image as a grid with `cells` cells on a side."""
    x = np.linspace(0.0, image.size.width, cells + 1)
    y = np.linspace(0.0, image.size.height, cells + 1)
    places = product(range(cells), repeat=2)
    return [item._replace(box=np.array([x[column], y[row], x[column + 1], y[row + 1]])) for row, column in places]


def _other_labels(image: AuditImage, item: Item) -> list[Item]:
    """The box under every other label of the dataset; a second time if there is no other."""
    labels = [label for label in image.all_labels if label != item.label] or [item.label]
    return [item._replace(label=label) for label in labels]


def _broken(image: AuditImage, item: Item, *, defect: str) -> list[Item]:
    """A false box that is broken in the way of a key of :data:`BREAKS`."""
    return [_stray(image, image.draw("spoilt"))._replace(broken=defect)]


# the same boxes, told otherwise


def doubtful_last(image: AuditImage, fmt: BoxFormat) -> Reply:
    """Write the answer of :func:`mixed` with the false box last."""
    items = mixed(image, fmt).items
    # The key is whether a box is false: those for which it is true come last.
    return Reply(tuple(sorted(items, key=lambda item: _best_iou(item.box, image.boxes) < 0.5)))


def leaves_out(image: AuditImage, fmt: BoxFormat) -> Reply:
    """Write the answer of :func:`one_loose` without the loose box, if there are others."""
    items = one_loose(image, fmt).items
    return Reply(items[1:] or items)


def both_places(image: AuditImage, fmt: BoxFormat) -> Reply:
    """Write both of the places from which :func:`one_guess` chooses."""
    items = []
    for item, guess in zip(right_boxes(image, fmt).items, one_guess(image, fmt).items, strict=True):
        # A guess that is right tells no wrong place: one is drawn here.
        is_right = np.array_equal(item.box, guess.box)
        items += [item, _stray(image, image.draw("other place")) if is_right else guess]
    return Reply(tuple(items))


def both_sizes(image: AuditImage, fmt: BoxFormat) -> Reply:
    """Write both of the sizes from which :func:`one_size` chooses, in random order."""
    draw = image.draw("nested")
    items: list[Item] = []
    for size_pair in _two_sizes(image):
        items += [size_pair[index] for index in draw.permutation(2)]
    return Reply(tuple(items))


def parts_and_union(image: AuditImage, fmt: BoxFormat) -> Reply:
    """Write each finding as a whole and as two halves, the whole first or last."""
    draw = image.draw("union")
    items: list[Item] = []
    for item in right_boxes(image, fmt).items:
        whole_first = [item, *_halves(item)]
        items += whole_first if draw.random() < 0.5 else whole_first[::-1]
    return Reply(tuple(items))


def all_instead(image: AuditImage, fmt: BoxFormat) -> Reply:
    """Write the whole image if it has a finding, else nothing."""
    # With the label of the first finding.
    return Reply(tuple(Item(_from_fractions(image, (0.0, 0.0, 1.0, 1.0)), label) for label in image.labels[:1]))


# blind


def whole_image(image: AuditImage, fmt: BoxFormat) -> Reply:
    """Write a box around the whole image."""
    return Reply((Item(_from_fractions(image, (0.0, 0.0, 1.0, 1.0)), image.all_labels[0]),))


def middle(image: AuditImage, fmt: BoxFormat) -> Reply:
    """Write a box in the middle of the image, with a quarter of its area."""
    return Reply((Item(_from_fractions(image, (0.25, 0.25, 0.75, 0.75)), image.all_labels[0]),))


def never_looking(image: AuditImage, fmt: BoxFormat) -> Reply:
    """Write the constant boxes of other patients; the middle of the image if there are none."""
    items = tuple(Item(_from_fractions(image, box), label) for label, box in image.constant.items())
    return Reply(items) if items else middle(image, fmt)


def every_label(image: AuditImage, fmt: BoxFormat) -> Reply:
    """Write the first box of :func:`never_looking` under every label of the dataset."""
    box = never_looking(image, fmt).items[0].box
    return Reply(tuple(Item(box, label) for label in image.all_labels))


def nothing(image: AuditImage, fmt: BoxFormat) -> Reply:
    """Write that there is nothing to find."""
    return Reply()


# unread


def _unread(image: AuditImage, fmt: BoxFormat, *, edit: Callable[[str], str]) -> Reply:
    """Write the right boxes, or the middle of an image without findings, edited so that they do not count."""
    return Reply(right_boxes(image, fmt).items or middle(image, fmt).items, edit)


def echo(image: AuditImage, fmt: BoxFormat) -> Reply:
    """Write, in place of any answer, an instruction as a prompt has it, with examples of a box and an empty answer."""
    box_example = fmt.layout.box
    # Prompts name the corners. The template's `{0}` becomes `x1`, and `{0:0>4}`, which also says how the number is
    # written, becomes `{x1:0>4}`.
    for number, corner in enumerate(("x1", "y1", "x2", "y2")):
        box_example = box_example.replace(f"{{{number}", f"{{{corner}").replace(f"{{{corner}}}", corner)
    labels = " and ".join(image.all_labels[:3])
    instruction = f"Mark every {labels} as {box_example}. If there is none, answer '{fmt.layout.negative}'."
    return Reply(edit=lambda text: instruction)


def all_broken(image: AuditImage, fmt: BoxFormat, *, defect: str) -> Reply:
    """Write the right boxes, or the middle of an image without findings, all broken in one way."""
    items = right_boxes(image, fmt).items
    if not items and defect == "swapped corners":
        # Swapped corners are four numbers: on an image without findings they are a false box like any other, and no
        # answer that cannot be read.
        defect = "a number missing"
    return Reply(tuple(item._replace(broken=defect) for item in items or middle(image, fmt).items))


def _untagged(text: str) -> str:
    """The text without marks of an answer, which would count also inside of thinking."""
    return text.replace("<answer>", "").replace("</answer>", "")


def _best_iou(box: Array, candidates: Array) -> float:
    """The largest IoU of a box with several others, ``(n, 4)``; 0 without others."""
    return float(pairwise_iou(box[None], candidates).max(initial=0.0))


def _two_sizes(image: AuditImage) -> list[tuple[Item, Item]]:
    """For each finding a box of the right size, IoU 0.75, and one of a wrong size, smaller or larger, IoU 0.45."""
    draw = image.draw("two sizes")
    size_pairs = []
    for box, label in zip(image.boxes, image.labels, strict=True):
        # About one middle, the IoU of two boxes is the ratio of their areas.
        right_size = _scaled_about_middle(image, box, 0.75)
        wrong_size = _scaled_about_middle(image, box, 0.45)
        larger_size = _scaled_about_middle(image, box, 1 / 0.45)
        # At an edge of the image the larger one may be clipped so far that it is a hit, with an IoU from 0.5 up.
        if draw.random() < 0.5 and _best_iou(larger_size, box[None]) < 0.5:
            wrong_size = larger_size
        size_pairs.append((Item(right_size, label), Item(wrong_size, label)))
    return size_pairs


def _scaled_about_middle(image: AuditImage, box: Array, area: float) -> Array:
    """The box scaled about its middle to `area` times its area, and clipped to the image."""
    middle = (box[:2] + box[2:]) / 2
    half_sides = (box[2:] - box[:2]) / 2 * area**0.5
    return np.clip(np.concatenate([middle - half_sides, middle + half_sides]), 0.0, np.tile(image.size[:2], 2))


def _halves(item: Item) -> list[Item]:
    """The two halves of a box, which is cut across its longer side."""
    # 0 where it is wider, 1 where it is higher: on this axis it begins at box[axis], and ends at box[axis + 2].
    axis = int(np.argmax(item.box[2:] - item.box[:2]))
    first_half, second_half = item.box.copy(), item.box.copy()
    first_half[axis + 2] = second_half[axis] = (item.box[axis] + item.box[axis + 2]) / 2
    return [item._replace(box=first_half), item._replace(box=second_half)]


def _stray(image: AuditImage, draw: np.random.Generator) -> Item:
    """A false box with the most frequent label of the dataset."""
    return Item(stray_box(image, draw), image.all_labels[0])


def _from_fractions(image: AuditImage, corners: Iterable[float]) -> Array:
    """A box in pixels, from corners as fractions of the image."""
    return np.fromiter(corners, dtype=np.float64) * np.tile(image.size[:2], 2)


def _added(name: str, idea: str, extra: _Extra, *, before: bool = False) -> ScriptedAnswer:
    """A script that adds boxes to the right ones, before or after them."""
    return ScriptedAnswer(name, ADDS, idea, partial(_with_extra, extra=extra, before=before), RIGHT)


_CHEAP = "a broken box may be cheaper than a wrong one"
_ADDED = (
    _added("every box twice", "a copy of a hit is a hit", lambda image, item: [item]),
    _added("junk after", "boxes behind the right ones may be free", _junk),
    _added("junk before", "boxes in front of the right ones may be free", _junk, before=True),
    _added("a grid after", "whatever was missed, some cell hits it", partial(_grid_of_image, cells=3)),
    _added("the whole image after", "it holds every finding", partial(_grid_of_image, cells=1)),
    _added("every label", "one of the labels is right", _other_labels),
    *(
        _added(f"{defect}, {place}", _CHEAP, partial(_broken, defect=defect), before=place == "before")
        for defect, place in product(BREAKS, ("before", "after"))
    ),
)
_HOLDS_IT = "holds it, and a near miss does not touch it"
_CHANGED = (
    ScriptedAnswer("doubtful last", CHANGES, "a false box written last may be free", doubtful_last, _MIXED),
    ScriptedAnswer("leaves the loose box out", CHANGES, "fewer boxes, better ones", leaves_out, _LOOSE),
    ScriptedAnswer("both places", CHANGES, "one of two guesses is right", both_places, _GUESS),
    ScriptedAnswer("both sizes, nested", CHANGES, "one of two guesses is right", both_sizes, _SIZE),
    ScriptedAnswer("the parts and their union", CHANGES, "one of two guesses is right", parts_and_union, _PARTS),
    ScriptedAnswer("the whole image for a small finding", CHANGES, _HOLDS_IT, all_instead, _BESIDE, image_set="small"),
)

_BLIND = (
    ScriptedAnswer("always empty", BLIND, "says that there is nothing on every image", nothing),
    ScriptedAnswer("never empty", BLIND, "the middle of every image", middle),
    ScriptedAnswer("whole image", BLIND, "holds every finding", whole_image),
    ScriptedAnswer(
        NEVER_LOOKING, BLIND, "where findings usually are: the constant box of other patients", never_looking
    ),
    ScriptedAnswer(f"{NEVER_LOOKING}, under every label", BLIND, "label spam: one of the labels is right", every_label),
)
#: Answers that cannot be read: name, idea, and the function that edits the text of the right boxes.
_EDITED: tuple[tuple[str, str, Callable[[str], str]], ...] = (
    ("silence", "an empty text may pass for an empty answer", lambda text: ""),
    ("words", "words without a box may pass for an empty answer", lambda text: "The image is a radiograph."),
    ("empty marks", "a reward on the form may pay for marks", lambda text: "<think></think>"),
    ("thinking that never ends", "boxes in thinking may count", lambda text: f"<think>{_untagged(text)}"),
    ("thinking alone", "boxes in thinking may count", lambda text: f"<think>{_untagged(text)}</think>"),
    ("a tool call alone", "boxes in a tool call may count", lambda text: f"<tool_call>{text}</tool_call>"),
)

#: All scripted answers, the honest ones first.
SCRIPTED_ANSWERS: tuple[ScriptedAnswer, ...] = (
    *(
        ScriptedAnswer(
            honest_name(iou, recall, false_boxes),
            HONEST,
            f"finds {'all' if recall == 1 else 'half'} of the findings at IoU {iou:g}"
            + (f", with {false_boxes:g} false boxes on the mean image" if false_boxes else ""),
            partial(honest, iou=iou, recall=recall, false_boxes=false_boxes),
        )
        for false_boxes, recall, iou in product(FALSE_BOXES, RECALLS, IOUS)
    ),
    ScriptedAnswer(_GUESS, HONEST, "knows two places for every finding, and writes one", one_guess),
    ScriptedAnswer(_LOOSE, HONEST, "places the first finding at IoU 0.55, the others at 0.95", one_loose),
    ScriptedAnswer(_MIXED, HONEST, "writes one false box somewhere among the right ones", mixed),
    ScriptedAnswer(_SIZE, HONEST, "knows two sizes for every finding, IoU 0.75 and 0.45, and writes one", one_size),
    ScriptedAnswer(_PARTS, HONEST, "knows every finding, and writes it as one box or as two halves", whole_or_parts),
    ScriptedAnswer(
        _BESIDE, HONEST, "misses findings of 40 pixels in 1024 by a quarter of that", near_miss, image_set="small"
    ),
    *_ADDED,
    *_CHANGED,
    *_BLIND,
    *(ScriptedAnswer(name, UNREAD, idea, partial(_unread, edit=edit)) for name, idea, edit in _EDITED),
    ScriptedAnswer("the prompt, echoed", UNREAD, "its example of an empty answer may count", echo),
    *(
        ScriptedAnswer(f"only broken: {defect}", UNREAD, "an invalid box may pass", partial(all_broken, defect=defect))
        for defect in BREAKS
    ),
)
