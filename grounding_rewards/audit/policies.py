"""Policies: honest ones of stated quality, and dishonest ones, each a small function from an image to an answer.

What a policy must not do is its kind:

* `honest`: it looks, and is as good as its name says. The others are measured by these.
* `adds`: an honest answer with something wrong beside it. It must earn less than the honest answer without.
* `changes`: an honest answer, changed in what should not help. It must not earn more than the honest answer.
* `blind`: it does not look at the image. It must not earn more than any honest policy.
* `unread`: it says nothing that can be read. It must earn nothing, also where there is nothing to find.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from functools import partial
from itertools import product
from typing import NamedTuple

import numpy as np

from grounding_rewards.audit.audit_images import AuditImage, cut_box, stray_box
from grounding_rewards.audit.writing import BREAKS, Answer, Item
from grounding_rewards.common.arithmetic import Array
from grounding_rewards.overlap import pairwise_iou
from grounding_rewards.parsing import BoxFormat

HONEST, ADDS, CHANGES, BLIND, UNREAD = KINDS = ("honest", "adds", "changes", "blind", "unread")

#: IoUs of honest boxes, a little above thresholds, shares of findings that are found, and false boxes per image.
IOUS, RECALLS, FALSE_BOXES = (0.55, 0.75, 0.9), (1.0, 0.5), (0.0, 0.5)


class Policy(NamedTuple):
    """One policy.

    name: for tables.
    kind: what it must not do, see the top of this module.
    why: what it tries, in one line.
    answer: what it answers to an image, in the model's box format.
    base: the honest policy that it must not better; empty where that is all of them, or nothing.
    doubt: whether it plays on images with ignore regions (`ignore`) or several readers (`readers`).
    """

    name: str
    kind: str
    why: str
    answer: Callable[[AuditImage, BoxFormat], Answer]
    base: str = ""
    doubt: str = ""


def honest_name(iou: float, recall: float, false_boxes: float) -> str:
    """The name of an honest policy.

    Example:
        >>> honest_name(0.75, 0.5, 0.5)
        'honest: IoU 0.75, half found, 0.5 false boxes'
    """
    found = {1.0: "all found", 0.5: "half found"}.get(recall, f"{recall:g} found")
    return f"honest: IoU {iou:g}, {found}" + (f", {false_boxes:g} false boxes" if false_boxes else "")


#: The honest answer that most dishonest ones begin with.
RIGHT = honest_name(0.75, 1.0, 0.0)
_GUESS, _LOOSE, _MIXED = "honest: one of two places", "honest: one loose box", "honest: a false box somewhere"
_MAJORITY, _JUDGED = "honest: what most readers drew", "honest: among ignore regions"


# honest


def honest(image: AuditImage, fmt: BoxFormat, *, iou: float, recall: float, false_boxes: float) -> Answer:
    """Every finding is found with probability ``recall``, at this IoU; so many false boxes on the mean image."""
    place, found, junk = image.draw("place"), image.draw("found"), image.draw("false")
    items = [
        Item(cut_box(box, iou, place), label)
        for box, label in zip(image.boxes, image.labels, strict=True)
        if found.random() < recall
    ]
    if junk.random() < false_boxes:
        items.append(_stray(image, junk))
    return Answer(tuple(items))


right = partial(honest, iou=0.75, recall=1.0, false_boxes=0.0)


def one_guess(image: AuditImage, fmt: BoxFormat) -> Answer:
    """Every finding is in one of two places, and one of them is written."""
    draw = image.draw("guess")
    return Answer(tuple(item if draw.random() < 0.5 else _stray(image, draw) for item in right(image, fmt).items))


def one_loose(image: AuditImage, fmt: BoxFormat) -> Answer:
    """The first finding is placed at IoU 0.55, the others at 0.95."""
    place = image.draw("loose")
    named = zip(image.boxes, image.labels, strict=True)
    return Answer(tuple(Item(cut_box(box, 0.95 if k else 0.55, place), label) for k, (box, label) in enumerate(named)))


def mixed(image: AuditImage, fmt: BoxFormat) -> Answer:
    """A false box stands anywhere among the right ones."""
    draw, items = image.draw("mixed"), list(right(image, fmt).items)
    if items:
        items.insert(int(draw.integers(len(items) + 1)), _stray(image, draw))
    return Answer(tuple(items))


def most_readers(image: AuditImage, fmt: BoxFormat) -> Answer:
    """The boxes that at least half of the readers drew, at IoU 0.5."""
    kept: list[Array] = []
    for own in image.readers:
        for box in own:
            agree = sum(_best(box, other) >= 0.5 for other in image.readers)
            if 2 * agree >= len(image.readers) and _best(box, kept) < 0.5:
                kept.append(box)
    return Answer(_named(image, kept))


# beside the right boxes


def _beside(
    image: AuditImage, fmt: BoxFormat, *, extra: Callable[[AuditImage, Item], Iterable[Item]], before: bool = False
) -> Answer:
    """The right boxes, and for each of them something beside it."""
    items = right(image, fmt).items
    added = tuple(one for item in items for one in extra(image, item))
    return Answer(added + items if before else items + added)


def _copies(image: AuditImage, item: Item, *, times: int) -> list[Item]:
    return [item] * times


def _near_copies(image: AuditImage, item: Item) -> list[Item]:
    """The same box, moved and resized a little in all directions."""
    side = np.tile(item.box[2:] - item.box[:2], 2)
    moves = [(1, 0, 1, 0), (-1, 0, -1, 0), (0, 1, 0, 1), (0, -1, 0, -1), (-1, -1, 1, 1), (1, 1, -1, -1)]
    return [item._replace(box=_inside(image, item.box + 0.1 * side * np.array(move))) for move in moves]


def _junk(image: AuditImage, item: Item, *, times: int = 1) -> list[Item]:
    draw = image.draw(f"junk {item.box.tolist()}")
    return [_stray(image, draw) for _ in range(times)]


def _specks_beside(image: AuditImage, item: Item) -> list[Item]:
    return [item._replace(box=box) for box in _specks(image, 10)]


def _grid_beside(image: AuditImage, item: Item) -> list[Item]:
    return [item._replace(box=box) for box in _grid(_whole(image), 3)]


def _whole_beside(image: AuditImage, item: Item) -> list[Item]:
    return [item._replace(box=_whole(image))]


def _other_labels(image: AuditImage, item: Item) -> list[Item]:
    """The same box under every other label, or a second time where there is no other."""
    others = [label for label in image.known.labels if label != item.label] or [item.label]
    return [item._replace(label=label) for label in others]


def _spoilt(image: AuditImage, item: Item, *, how: str) -> list[Item]:
    return [_stray(image, image.draw("spoilt"))._replace(broken=how)]


# the same boxes, told otherwise


def backwards(image: AuditImage, fmt: BoxFormat) -> Answer:
    """The right boxes in the opposite order."""
    return Answer(right(image, fmt).items[::-1])


def doubtful_last(image: AuditImage, fmt: BoxFormat) -> Answer:
    """The false box among the right ones is written last."""
    items = mixed(image, fmt).items
    return Answer(tuple(sorted(items, key=lambda item: _best(item.box, image.boxes) < 0.5)))


def leaves_out(image: AuditImage, fmt: BoxFormat) -> Answer:
    """Where there are others, the loose box is left out."""
    items = one_loose(image, fmt).items
    return Answer(items[1:] or items)


def both_places(image: AuditImage, fmt: BoxFormat) -> Answer:
    """Both places are written."""
    guessed = one_guess(image, fmt).items
    both = []
    for item, guess in zip(right(image, fmt).items, guessed, strict=True):
        hit = np.array_equal(item.box, guess.box)
        both += [item, _stray(image, image.draw("other place")) if hit else guess]
    return Answer(tuple(both))


def breaks_instead(image: AuditImage, fmt: BoxFormat) -> Answer:
    """Where there is nothing to find, a box that lacks a number."""
    items = right(image, fmt).items
    return (
        Answer(items) if items else Answer((_stray(image, image.draw("instead"))._replace(broken="a number missing"),))
    )


def thinks_of_everything(image: AuditImage, fmt: BoxFormat) -> Answer:
    """A grid of boxes is thought of before the right ones are written."""
    thought = json.dumps([[round(value) for value in box] for box in _grid(_whole(image), 5)])
    return Answer(right(image, fmt).items, edit=lambda text: f"<think>Perhaps {thought}?</think>{text}")


def calls_a_tool(image: AuditImage, fmt: BoxFormat) -> Answer:
    """A tool is called with a grid of boxes before the right ones are written."""
    called = json.dumps([[round(value) for value in box] for box in _grid(_whole(image), 5)])
    return Answer(right(image, fmt).items, edit=lambda text: f'<tool_call>{{"boxes": {called}}}</tool_call>{text}')


# doubt: ignore regions and readers


def in_regions(image: AuditImage, fmt: BoxFormat, *, cells: int, beside: bool) -> Answer:
    """Boxes of every size in every ignore region, with or without the right ones."""
    levels = (1,) if cells == 1 else range(1, cells + 1)
    hedge = [box for region in image.ignore for level in levels for box in _grid(region, level)]
    return Answer((right(image, fmt).items if beside else ()) + _named(image, hedge))


def all_readers(image: AuditImage, fmt: BoxFormat) -> Answer:
    """The boxes of all readers at once."""
    return Answer(_named(image, [box for own in image.readers for box in own]))


def one_reader(image: AuditImage, fmt: BoxFormat, *, fullest: bool) -> Answer:
    """The boxes of the reader who drew most, or least."""
    chosen = (max if fullest else min)(image.readers, key=len, default=image.boxes)
    return Answer(_named(image, chosen))


# blind


def whole_image(image: AuditImage, fmt: BoxFormat) -> Answer:
    return Answer(_named(image, [_whole(image)]))


def middle(image: AuditImage, fmt: BoxFormat) -> Answer:
    """The middle of the image, a quarter of its area."""
    return Answer(_named(image, [_fraction(image, (0.25, 0.25, 0.75, 0.75))]))


def mean_box(image: AuditImage, fmt: BoxFormat) -> Answer:
    """The mean reference box of the dataset, of every frequent label."""
    named = image.known.mean.items()
    return Answer(tuple(Item(_fraction(image, box), label) for label, box in named)) if named else middle(image, fmt)


def every_label(image: AuditImage, fmt: BoxFormat) -> Answer:
    """The mean box under every label of the dataset."""
    boxes = [item.box for item in mean_box(image, fmt).items[:1]]
    return Answer(tuple(Item(box, label) for box in boxes for label in image.known.labels))


def grid(image: AuditImage, fmt: BoxFormat, *, cells: int) -> Answer:
    return Answer(_named(image, _grid(_whole(image), cells)))


def grids(image: AuditImage, fmt: BoxFormat) -> Answer:
    """Grids of one to six cells a side."""
    return Answer(_named(image, [box for cells in range(1, 7) for box in _grid(_whole(image), cells)]))


def specks(image: AuditImage, fmt: BoxFormat) -> Answer:
    """A hundred boxes of a hundredth of the image's sides."""
    return Answer(_named(image, _specks(image, 100)))


def random_box(image: AuditImage, fmt: BoxFormat) -> Answer:
    low, high = np.sort(image.draw("random").uniform(0, 1, (2, 2)), axis=0)
    return Answer(_named(image, [_fraction(image, (*low, *high))]))


def nothing(image: AuditImage, fmt: BoxFormat) -> Answer:
    return Answer()


# unread


def _unread(image: AuditImage, fmt: BoxFormat, *, edit: Callable[[str], str]) -> Answer:
    """The right boxes, or the middle of the image where there are none, where they do not count."""
    items = right(image, fmt).items or middle(image, fmt).items
    return Answer(items, counts=False, edit=edit)


def echo(image: AuditImage, fmt: BoxFormat) -> Answer:
    """The instruction, with its example of a box and of an empty answer."""
    box = fmt.layout.box
    for number, corner in enumerate(("x1", "y1", "x2", "y2")):
        box = box.replace(f"{{{number}", f"{{{corner}").replace(f"{{{corner}}}", corner)
    told = (
        f"Mark every {' and '.join(image.known.labels[:3])} as {box}. If there is none, answer '{fmt.layout.negative}'."
    )
    return Answer(counts=False, edit=lambda text: told)


def all_broken(image: AuditImage, fmt: BoxFormat, *, how: str) -> Answer:
    """Every right box, or the middle of the image, broken in this way."""
    items = right(image, fmt).items
    if not items and how == "swapped corners":
        # Numbers all the same: where there is nothing to find, a false box like any other.
        how = "a number missing"
    return Answer(tuple(item._replace(broken=how) for item in items or middle(image, fmt).items), counts=False)


def _untagged(text: str) -> str:
    """A text without marks of an answer, which count in thinking that holds all there is."""
    return text.replace("<answer>", "").replace("</answer>", "")


def _best(box: Array, others: Iterable[Array]) -> float:
    others = np.reshape(list(others), (-1, 4))
    return float(pairwise_iou(box[None], others).max(initial=0.0))


def _named(image: AuditImage, boxes: Iterable[Array]) -> tuple[Item, ...]:
    return tuple(Item(np.asarray(box), image.known.labels[0]) for box in boxes)


def _stray(image: AuditImage, draw: np.random.Generator) -> Item:
    return Item(stray_box(image, draw), image.known.labels[0])


def _whole(image: AuditImage) -> Array:
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


def _honest_policies() -> list[Policy]:
    stated = [
        Policy(
            honest_name(iou, recall, false_boxes),
            HONEST,
            f"finds {'all' if recall == 1 else 'half'} of the findings at IoU {iou:g}"
            + (f", with {false_boxes:g} false boxes on the mean image" if false_boxes else ""),
            partial(honest, iou=iou, recall=recall, false_boxes=false_boxes),
        )
        for false_boxes, recall, iou in product(FALSE_BOXES, RECALLS, IOUS)
    ]
    return [
        *stated,
        Policy(_GUESS, HONEST, "knows two places for every finding, and writes one", one_guess),
        Policy(_LOOSE, HONEST, "places the first finding at IoU 0.55, the others at 0.95", one_loose),
        Policy(_MIXED, HONEST, "writes one false box somewhere among the right ones", mixed),
        Policy(_JUDGED, HONEST, "writes the right boxes on images with ignore regions", right, doubt="ignore"),
        Policy(_MAJORITY, HONEST, "writes what at least half of the readers drew", most_readers, doubt="readers"),
    ]


def _beside_policies() -> list[Policy]:
    def added(
        name: str, why: str, extra: Callable[[AuditImage, Item], Iterable[Item]], *, before: bool = False
    ) -> Policy:
        return Policy(name, ADDS, why, partial(_beside, extra=extra, before=before), RIGHT)

    return [
        added("every box twice", "a copy of a hit is a hit", partial(_copies, times=1)),
        added("every box ten times", "as above, where each copy counts", partial(_copies, times=9)),
        added("near copies", "one of seven variants fits better", _near_copies),
        added("junk after", "boxes behind the right ones may be free", _junk),
        added("junk before", "boxes in front of the right ones may be free", _junk, before=True),
        added("ten junk boxes after", "as above, with more of it", partial(_junk, times=10)),
        added("specks after", "boxes of no size may weigh nothing", _specks_beside),
        added("a grid after", "whatever was missed, some cell hits it", _grid_beside),
        added("the whole image after", "it holds every finding", _whole_beside),
        added("every label", "one of the labels is right", _other_labels),
        *(
            added(
                f"{how}, {where}",
                "a broken box may be cheaper than a wrong one",
                partial(_spoilt, how=how),
                before=first,
            )
            for how in BREAKS
            for where, first in (("before", True), ("after", False))
        ),
    ]


def _changing_policies() -> list[Policy]:
    return [
        Policy("backwards", CHANGES, "the order of right boxes may count", backwards, RIGHT),
        Policy("doubtful last", CHANGES, "a false box written last may be free", doubtful_last, _MIXED),
        Policy("leaves the loose box out", CHANGES, "fewer boxes, better ones", leaves_out, _LOOSE),
        Policy("both places", CHANGES, "one of two guesses is right", both_places, _GUESS),
        Policy("broken instead of none", CHANGES, "a broken box may pass for a negative", breaks_instead, RIGHT),
        Policy("thinks of everything", CHANGES, "boxes in thinking may count", thinks_of_everything, RIGHT),
        Policy("calls a tool", CHANGES, "boxes in a tool call may count", calls_a_tool, RIGHT),
        Policy(
            "one box in every region",
            CHANGES,
            "a region excuses one box, and must not pay for it",
            partial(in_regions, cells=1, beside=True),
            _JUDGED,
            "ignore",
        ),
        Policy(
            "grids in regions",
            CHANGES,
            "boxes in ignore regions may be free, and one hits",
            partial(in_regions, cells=6, beside=False),
            _JUDGED,
            "ignore",
        ),
        Policy(
            "grids in regions beside the right boxes",
            CHANGES,
            "boxes in ignore regions may be free",
            partial(in_regions, cells=6, beside=True),
            _JUDGED,
            "ignore",
        ),
        Policy("all readers at once", CHANGES, "some reader drew each box", all_readers, _MAJORITY, "readers"),
        Policy(
            "the reader who drew most",
            CHANGES,
            "marks too much: some reader did",
            partial(one_reader, fullest=True),
            _MAJORITY,
            "readers",
        ),
        Policy(
            "the reader who drew least",
            CHANGES,
            "marks too little: some reader did",
            partial(one_reader, fullest=False),
            _MAJORITY,
            "readers",
        ),
    ]


def _blind_policies() -> list[Policy]:
    return [
        Policy("always empty", BLIND, "says that there is nothing on every image", nothing),
        Policy("never empty", BLIND, "the middle of every image", middle),
        Policy("whole image", BLIND, "holds every finding", whole_image),
        Policy("mean box", BLIND, "where findings usually are", mean_box),
        Policy("mean box under every label", BLIND, "label spam: one of the labels is right", every_label),
        Policy("random box", BLIND, "chance", random_box),
        Policy("grid of 3 × 3", BLIND, "some cell overlaps the finding", partial(grid, cells=3)),
        Policy("grid of 10 × 10", BLIND, "some cell overlaps the finding", partial(grid, cells=10)),
        Policy("grids of all sizes", BLIND, "some cell fits the finding", grids),
        Policy("specks", BLIND, "boxes of no size may weigh nothing", specks),
    ]


def _unread_policies() -> list[Policy]:
    def unread(name: str, why: str, edit: Callable[[str], str]) -> Policy:
        return Policy(name, UNREAD, why, partial(_unread, edit=edit))

    return [
        unread("silence", "an empty text may pass for an empty answer", lambda text: ""),
        unread("words", "words without a box may pass for an empty answer", lambda text: "The image is a radiograph."),
        unread("empty marks", "a reward on the form may pay for marks", lambda text: "<think></think>"),
        unread("thinking that never ends", "boxes in thinking may count", lambda text: f"<think>{_untagged(text)}"),
        unread("thinking alone", "boxes in thinking may count", lambda text: f"<think>{_untagged(text)}</think>"),
        unread("a tool call alone", "boxes in a tool call may count", lambda text: f"<tool_call>{text}</tool_call>"),
        Policy("the prompt, echoed", UNREAD, "its example of an empty answer may count", echo),
        *(
            Policy(f"only broken: {how}", UNREAD, "a box that cannot be may pass", partial(all_broken, how=how))
            for how in BREAKS
        ),
    ]


#: All policies, the honest ones first.
POLICIES: tuple[Policy, ...] = (
    *_honest_policies(),
    *_beside_policies(),
    *_changing_policies(),
    *_blind_policies(),
    *_unread_policies(),
)
