"""Scripted answers, honest ones of stated quality and dishonest ones: a small function from an image to an answer.

The kind of an answer is a rule for its reward:

* `honest`: it looks, and is as good as its name says. The others are compared with these.
* `adds`: an honest answer with something wrong added. It must earn less than the honest answer without.
* `changes`: an honest answer, changed in what should not help. It must not earn more than the honest answer.
* `blind`: it does not look at the image. It must not earn more than any honest one.
* `unread`: it says nothing that can be read. It must earn nothing, also where there is nothing to find.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from itertools import product
from typing import NamedTuple

import numpy as np

from grounding_rewards.audit.audit_images import SQUARE_SIDE, AuditImage, cut_box, stray_box
from grounding_rewards.audit.render import BREAKS, Item, Reply
from grounding_rewards.common.numeric import Array
from grounding_rewards.overlap import pairwise_iou
from grounding_rewards.parsing import BoxFormat

HONEST, ADDS, CHANGES, BLIND, UNREAD = KINDS = ("honest", "adds", "changes", "blind", "unread")

#: IoUs of honest boxes, a little above thresholds, shares of findings that are found, and false boxes per image.
IOUS, RECALLS, FALSE_BOXES = (0.55, 0.75, 0.9), (1.0, 0.5), (0.0, 0.5)


_Answers = Callable[[AuditImage, BoxFormat], Reply]
# What is added beside a right box of an image.
_Extra = Callable[[AuditImage, Item], Iterable[Item]]


class ScriptedAnswer(NamedTuple):
    """One answer to every image.

    name: for tables.
    kind: what it must not do, see the top of this module.
    idea: the idea, in one line.
    answer: its answer to an image, in the model's box format.
    base: the honest one that it must not better; empty if that is all of them, or none.
    doubt: whether it plays on images with several readers (`readers`), small findings (`small`) or 1000 × 1000 pixels
        (`square`).
    """

    name: str
    kind: str
    idea: str
    answer: _Answers
    base: str = ""
    doubt: str = ""


def honest_name(iou: float, recall: float, false_boxes: float) -> str:
    """The name of an honest answer.

    Example:
        >>> honest_name(0.75, 0.5, 0.5)
        'honest: IoU 0.75, half found, 0.5 false boxes'
    """
    share = {1.0: "all found", 0.5: "half found"}.get(recall, f"{recall:g} found")
    return f"honest: IoU {iou:g}, {share}" + (f", {false_boxes:g} false boxes" if false_boxes else "")


#: The honest answer that most dishonest ones begin with.
RIGHT = honest_name(0.75, 1.0, 0.0)
_GUESS, _LOOSE, _MIXED = "honest: one of two places", "honest: one loose box", "honest: a false box somewhere"
_MAJORITY = "honest: what most readers drew"
_SIZE, _PARTS, _BESIDE = "honest: one of two sizes", "honest: whole or parts", "honest: beside a small finding"
#: The answer of :func:`never_looking`.
NEVER_LOOKING = "never looking"
#: Scripts that write both of two guesses.
GUESSES = ("both places", "both sizes, nested", "the parts and their union")
#: The ladder of blind answers: numbers of boxes, and sides of a single box in pixels of 1000.
COUNTS, SIDES = range(21), (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)


# honest


def honest(image: AuditImage, fmt: BoxFormat, *, iou: float, recall: float, false_boxes: float) -> Reply:
    """Every finding is found with probability ``recall``, at this IoU; so many false boxes on the mean image."""
    place, hit_draw, junk = image.draw("place"), image.draw("found"), image.draw("false")
    items = [
        Item(cut_box(box, iou, place), label)
        for box, label in zip(image.boxes, image.labels, strict=True)
        if hit_draw.random() < recall
    ]
    if junk.random() < false_boxes:
        items.append(_stray(image, junk))
    return Reply(tuple(items))


right_boxes = partial(honest, iou=0.75, recall=1.0, false_boxes=0.0)


def one_guess(image: AuditImage, fmt: BoxFormat) -> Reply:
    """Every finding is in one of two places, and one of them is written."""
    draw = image.draw("guess")
    return Reply(tuple(item if draw.random() < 0.5 else _stray(image, draw) for item in right_boxes(image, fmt).items))


def one_loose(image: AuditImage, fmt: BoxFormat) -> Reply:
    """The first finding is placed at IoU 0.55, the others at 0.95."""
    place = image.draw("loose")
    findings = zip(image.boxes, image.labels, strict=True)
    return Reply(
        tuple(Item(cut_box(box, 0.95 if k else 0.55, place), label) for k, (box, label) in enumerate(findings))
    )


def mixed(image: AuditImage, fmt: BoxFormat) -> Reply:
    """A false box stands anywhere among the right ones."""
    draw, items = image.draw("mixed"), list(right_boxes(image, fmt).items)
    if items:
        items.insert(int(draw.integers(len(items) + 1)), _stray(image, draw))
    return Reply(tuple(items))


def one_size(image: AuditImage, fmt: BoxFormat) -> Reply:
    """Every finding is small or large, and a box of one of the two sizes is written."""
    draw = image.draw("size")
    return Reply(tuple(sizes[int(draw.random() < 0.5)] for sizes in _two_sizes(image)))


def whole_or_parts(image: AuditImage, fmt: BoxFormat) -> Reply:
    """Every finding is one or two, and one box or its two halves are written."""
    draw = image.draw("parts")
    return Reply(
        tuple(
            part
            for item in right_boxes(image, fmt).items
            for part in ([item] if draw.random() < 0.5 else _halves(item))
        )
    )


def near_miss(image: AuditImage, fmt: BoxFormat) -> Reply:
    """A box of the right size, a quarter of its width beside the finding."""
    width = image.boxes[:, 2] - image.boxes[:, 0]
    moves = np.where(image.boxes[:, 2] + 1.25 * width <= image.size.width, 1.25, -1.25) * width
    boxes = image.boxes + moves[:, None] * np.array([1, 0, 1, 0])
    return Reply(tuple(Item(box, label) for box, label in zip(boxes, image.labels, strict=True)))


def most_readers(image: AuditImage, fmt: BoxFormat) -> Reply:
    """The boxes that at least half of the readers drew, at IoU 0.5."""
    majority_boxes: list[Array] = []
    for reader_boxes in image.readers:
        for box in reader_boxes:
            agree = sum(_best(box, reader) >= 0.5 for reader in image.readers)
            if 2 * agree >= len(image.readers) and _best(box, majority_boxes) < 0.5:
                majority_boxes.append(box)
    return Reply(_as_items(image, majority_boxes))


# beside the right boxes


def _with_extra(image: AuditImage, fmt: BoxFormat, *, extra: _Extra, before: bool) -> Reply:
    """The right boxes, and for each of them something beside it."""
    items = right_boxes(image, fmt).items
    added = tuple(item for item in items for item in extra(image, item))
    return Reply(added + items if before else items + added)


def _near_copies(image: AuditImage, item: Item) -> list[Item]:
    """The same box, moved and resized a little in all directions."""
    side = np.tile(item.box[2:] - item.box[:2], 2)
    moves = [(1, 0, 1, 0), (-1, 0, -1, 0), (0, 1, 0, 1), (0, -1, 0, -1), (-1, -1, 1, 1), (1, 1, -1, -1)]
    return [item._replace(box=_inside(image, item.box + 0.1 * side * np.array(move))) for move in moves]


def _junk(image: AuditImage, item: Item, *, times: int = 1) -> list[Item]:
    draw = image.draw(f"junk {item.box.tolist()}")
    return [_stray(image, draw) for _ in range(times)]


def _at(places: Callable[[AuditImage], Iterable[Array]]) -> _Extra:
    """The finding's label at other places."""
    return lambda image, item: [item._replace(box=box) for box in places(image)]


def _other_labels(image: AuditImage, item: Item) -> list[Item]:
    """The same box under every other label, or a second time where there is no other."""
    labels = [label for label in image.all_labels if label != item.label] or [item.label]
    return [item._replace(label=label) for label in labels]


def _spoilt(image: AuditImage, item: Item, *, defect: str) -> list[Item]:
    return [_stray(image, image.draw("spoilt"))._replace(broken=defect)]


# the same boxes, told otherwise


def doubtful_last(image: AuditImage, fmt: BoxFormat) -> Reply:
    """The false box among the right ones is written last."""
    items = mixed(image, fmt).items
    return Reply(tuple(sorted(items, key=lambda item: _best(item.box, image.boxes) < 0.5)))


def leaves_out(image: AuditImage, fmt: BoxFormat) -> Reply:
    """The loose box is left out, if there are others."""
    items = one_loose(image, fmt).items
    return Reply(items[1:] or items)


def both_places(image: AuditImage, fmt: BoxFormat) -> Reply:
    """Both places are written."""
    guessed = one_guess(image, fmt).items
    items = []
    for item, guess in zip(right_boxes(image, fmt).items, guessed, strict=True):
        hit = np.array_equal(item.box, guess.box)
        items += [item, _stray(image, image.draw("other place")) if hit else guess]
    return Reply(tuple(items))


def both_sizes(image: AuditImage, fmt: BoxFormat) -> Reply:
    """A small box and a large one around it, in any order."""
    draw = image.draw("nested")
    return Reply(tuple(sizes[k] for sizes in _two_sizes(image) for k in draw.permutation(2)))


def parts_and_union(image: AuditImage, fmt: BoxFormat) -> Reply:
    """The two halves of every finding, and the whole in front of them or behind."""
    draw, items = image.draw("union"), list[Item]()
    for item in right_boxes(image, fmt).items:
        items += [item, *_halves(item)][:: 1 if draw.random() < 0.5 else -1]
    return Reply(tuple(items))


def all_instead(image: AuditImage, fmt: BoxFormat) -> Reply:
    """The whole image, if there is a finding."""
    return Reply(tuple(Item(_image_box(image), label) for label in image.labels[:1]))


# several readers


def all_readers(image: AuditImage, fmt: BoxFormat) -> Reply:
    """The boxes of all readers at once."""
    return Reply(_as_items(image, [box for reader_boxes in image.readers for box in reader_boxes]))


def fullest_reader(image: AuditImage, fmt: BoxFormat) -> Reply:
    """The boxes of the reader who drew most."""
    fullest = max(image.readers, key=len, default=image.boxes)
    return Reply(_as_items(image, fullest))


# blind


def whole_image(image: AuditImage, fmt: BoxFormat) -> Reply:
    return Reply(_as_items(image, [_image_box(image)]))


def middle(image: AuditImage, fmt: BoxFormat) -> Reply:
    """The middle of the image, a quarter of its area."""
    return Reply(_as_items(image, [_fraction(image, (0.25, 0.25, 0.75, 0.75))]))


def never_looking(image: AuditImage, fmt: BoxFormat) -> Reply:
    """The constant box, or boxes, that other patients allow; the middle of the image where they allow none."""
    items = tuple(Item(_fraction(image, box), label) for label, box in image.constant.items())
    return Reply(items) if items else middle(image, fmt)


def every_label(image: AuditImage, fmt: BoxFormat) -> Reply:
    """The constant box under every label of the dataset."""
    boxes = [item.box for item in never_looking(image, fmt).items[:1]]
    return Reply(tuple(Item(box, label) for box in boxes for label in image.all_labels))


def grids(image: AuditImage, fmt: BoxFormat) -> Reply:
    """Grids of one to six cells a side."""
    return Reply(_as_items(image, [box for cells in range(1, 7) for box in _grid(_image_box(image), cells)]))


def some_boxes(image: AuditImage, fmt: BoxFormat, *, count: int) -> Reply:
    """A number of boxes in rows, wherever the findings are."""
    boxes = []
    for k in range(count):
        left, top = 40.0 + 180 * (k % 5), 40.0 + 240 * (k // 5)
        boxes.append(np.array([left, top, left + 120, top + 160]))
    return Reply(_as_items(image, boxes))


def one_square(image: AuditImage, fmt: BoxFormat, *, side: int) -> Reply:
    """A square in the middle."""
    corner = (SQUARE_SIDE - side) // 2
    return Reply(_as_items(image, [np.array([corner, corner, corner + side, corner + side], dtype=np.float64)]))


def random_box(image: AuditImage, fmt: BoxFormat) -> Reply:
    low, high = np.sort(image.draw("random").uniform(0, 1, (2, 2)), axis=0)
    return Reply(_as_items(image, [_fraction(image, (*low, *high))]))


def nothing(image: AuditImage, fmt: BoxFormat) -> Reply:
    return Reply()


# unread


def _unread(image: AuditImage, fmt: BoxFormat, *, edit: Callable[[str], str]) -> Reply:
    """The right boxes, or the middle of the image where there are none, where they do not count."""
    items = right_boxes(image, fmt).items or middle(image, fmt).items
    return Reply(items, counts=False, edit=edit)


def echo(image: AuditImage, fmt: BoxFormat) -> Reply:
    """The instruction, with its example of a box and of an empty answer."""
    box = fmt.layout.box
    for number, corner in enumerate(("x1", "y1", "x2", "y2")):
        box = box.replace(f"{{{number}", f"{{{corner}").replace(f"{{{corner}}}", corner)
    instruction = (
        f"Mark every {' and '.join(image.all_labels[:3])} as {box}. If there is none, answer '{fmt.layout.negative}'."
    )
    return Reply(counts=False, edit=lambda text: instruction)


def all_broken(image: AuditImage, fmt: BoxFormat, *, defect: str) -> Reply:
    """Every right box, or the middle of the image, broken in this way."""
    items = right_boxes(image, fmt).items
    if not items and defect == "swapped corners":
        # Numbers all the same: where there is nothing to find, a false box like any other.
        defect = "a number missing"
    return Reply(tuple(item._replace(broken=defect) for item in items or middle(image, fmt).items), counts=False)


def _untagged(text: str) -> str:
    """A text without marks of an answer, which count in thinking that holds all there is."""
    return text.replace("<answer>", "").replace("</answer>", "")


def _best(box: Array, candidates: Iterable[Array]) -> float:
    candidates = np.reshape(list(candidates), (-1, 4))
    return float(pairwise_iou(box[None], candidates).max(initial=0.0))


def _as_items(image: AuditImage, boxes: Iterable[Array]) -> tuple[Item, ...]:
    return tuple(Item(np.asarray(box), image.all_labels[0]) for box in boxes)


def _two_sizes(image: AuditImage) -> list[tuple[Item, Item]]:
    """Of each finding a box at IoU 0.75, and one at 0.45 that lies in it or around it."""
    draw, sizes = image.draw("two sizes"), []
    for box, label in zip(image.boxes, image.labels, strict=True):
        right_size, smaller, larger = (_resized(image, box, area) for area in (0.75, 0.45, 1 / 0.45))
        # At an edge of the image the large one may be cut so far that it is right, too.
        wrong_size = larger if draw.random() < 0.5 and _best(larger, [box]) < 0.5 else smaller
        sizes.append((Item(right_size, label), Item(wrong_size, label)))
    return sizes


def _resized(image: AuditImage, box: Array, area: float) -> Array:
    """The box about its middle, with so many times its area."""
    middle, half = (box[:2] + box[2:]) / 2, (box[2:] - box[:2]) / 2 * area**0.5
    return _inside(image, np.concatenate([middle - half, middle + half]))


def _halves(item: Item) -> list[Item]:
    """Two boxes side by side along the longer side."""
    axis = int(np.argmax(item.box[2:] - item.box[:2]))
    first, second = item.box.copy(), item.box.copy()
    first[axis + 2] = second[axis] = (item.box[axis] + item.box[axis + 2]) / 2
    return [item._replace(box=first), item._replace(box=second)]


def _stray(image: AuditImage, draw: np.random.Generator) -> Item:
    return Item(stray_box(image, draw), image.all_labels[0])


def _image_box(image: AuditImage) -> Array:
    return _fraction(image, (0.0, 0.0, 1.0, 1.0))


def _fraction(image: AuditImage, corners: Iterable[float]) -> Array:
    return np.fromiter(corners, dtype=np.float64) * np.tile(image.size[:2], 2)


def _inside(image: AuditImage, box: Array) -> Array:
    return np.clip(box, 0.0, np.tile(image.size[:2], 2))


def _grid(box: Array, cells: int) -> list[Array]:
    """The box in as many cells a side."""
    x, y = (np.linspace(box[k], box[k + 2], cells + 1) for k in (0, 1))
    return [np.array([x[i], y[j], x[i + 1], y[j + 1]]) for j, i in product(range(cells), repeat=2)]


def _specks(image: AuditImage, count: int) -> list[Array]:
    corners = image.draw("specks").uniform(0, 0.99, (count, 2))
    return [_fraction(image, (*corner, *(corner + 0.01))) for corner in corners]


def _added(name: str, idea: str, extra: _Extra, *, before: bool = False) -> ScriptedAnswer:
    """Something wrong beside each right box, behind them or in front."""
    return ScriptedAnswer(name, ADDS, idea, partial(_with_extra, extra=extra, before=before), RIGHT)


_CHEAP = "a broken box may be cheaper than a wrong one"
_ADDED = (
    _added("every box twice", "a copy of a hit is a hit", lambda image, item: [item]),
    _added("every box ten times", "as above, where each copy counts", lambda image, item: [item] * 9),
    _added("near copies", "one of seven variants fits better", _near_copies),
    _added("junk after", "boxes behind the right ones may be free", _junk),
    _added("junk before", "boxes in front of the right ones may be free", _junk, before=True),
    _added("ten junk boxes after", "as above, with more of it", partial(_junk, times=10)),
    _added("specks after", "boxes of no size may weigh nothing", _at(partial(_specks, count=10))),
    _added("a grid after", "whatever was missed, some cell hits it", _at(lambda image: _grid(_image_box(image), 3))),
    _added("the whole image after", "it holds every finding", _at(lambda image: [_image_box(image)])),
    _added("every label", "one of the labels is right", _other_labels),
    *(
        _added(f"{defect}, {place}", _CHEAP, partial(_spoilt, defect=defect), before=place == "before")
        for defect, place in product(BREAKS, ("before", "after"))
    ),
)
#: Honest answers, changed: the name, what it tries, the answer, the honest one, and where it plays.
_CHANGED: tuple[tuple[str, str, _Answers, str, str], ...] = (
    ("doubtful last", "a false box written last may be free", doubtful_last, _MIXED, ""),
    ("leaves the loose box out", "fewer boxes, better ones", leaves_out, _LOOSE, ""),
    ("both places", "one of two guesses is right", both_places, _GUESS, ""),
    ("both sizes, nested", "one of two guesses is right", both_sizes, _SIZE, ""),
    ("the parts and their union", "one of two guesses is right", parts_and_union, _PARTS, ""),
    (
        "the whole image for a small finding",
        "holds it, and a near miss does not touch it",
        all_instead,
        _BESIDE,
        "small",
    ),
    ("all readers at once", "some reader drew each box", all_readers, _MAJORITY, "readers"),
    ("the reader who drew most", "marks too much: some reader did", fullest_reader, _MAJORITY, "readers"),
)
_BLIND: tuple[tuple[str, str, _Answers], ...] = (
    ("always empty", "says that there is nothing on every image", nothing),
    ("never empty", "the middle of every image", middle),
    ("whole image", "holds every finding", whole_image),
    (NEVER_LOOKING, "where findings usually are: the constant box of other patients", never_looking),
    (f"{NEVER_LOOKING}, under every label", "label spam: one of the labels is right", every_label),
    ("random box", "chance", random_box),
    ("grids of all sizes", "some cell fits the finding", grids),
)
#: What is made of the text of the right boxes, so that nothing in it counts.
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
        _BESIDE, HONEST, "misses findings of 40 pixels in 1024 by a quarter of that", near_miss, doubt="small"
    ),
    ScriptedAnswer(_MAJORITY, HONEST, "writes what at least half of the readers drew", most_readers, doubt="readers"),
    *_ADDED,
    *(ScriptedAnswer(name, CHANGES, idea, answer, base, doubt) for name, idea, answer, base, doubt in _CHANGED),
    *(ScriptedAnswer(name, BLIND, idea, answer) for name, idea, answer in _BLIND),
    *(
        ScriptedAnswer(f"{n} boxes", BLIND, "a number alone may pay", partial(some_boxes, count=n), doubt="square")
        for n in COUNTS
    ),
    *(
        ScriptedAnswer(f"{n} × {n} pixels", BLIND, "a size alone may pay", partial(one_square, side=n), doubt="square")
        for n in SIDES
    ),
    *(ScriptedAnswer(name, UNREAD, idea, partial(_unread, edit=edit)) for name, idea, edit in _EDITED),
    ScriptedAnswer("the prompt, echoed", UNREAD, "its example of an empty answer may count", echo),
    *(
        ScriptedAnswer(f"only broken: {defect}", UNREAD, "an invalid box may pass", partial(all_broken, defect=defect))
        for defect in BREAKS
    ),
)
