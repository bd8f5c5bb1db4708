"""The report of an evaluation as one HTML file: metrics with intervals, plots, images with boxes, every reward.

The file loads nothing: everything is inside it, and its Content-Security-Policy forbids the rest. What a model wrote
is data and never markup. The file shows images and what a model wrote about them: keep it as private as the images.

Its size is bounded: at most :data:`MOST_PICTURES` pictures take :data:`PICTURE_BUDGET` characters, first those of the
groups, then others while there is room; :data:`TEXT_BUDGET` characters of answers are shared equally between the
images; :data:`MOST_LISTED` images are in the table with :data:`MOST_BOXES` boxes each.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from grounding_rewards.common.formatting import format_value
from grounding_rewards.metrics.confusion import (
    IGNORED,
    MISSED,
    WRONG_LABEL,
    WRONG_PLACE,
    BoxOutcomes,
    Confusion,
    format_iou,
    has_sides,
    image_summary,
    outcomes_of,
)
from grounding_rewards.metrics.detection import MatchedImages, label_groups
from grounding_rewards.metrics.evaluation import Evaluation
from grounding_rewards.metrics.intervals import format_interval
from grounding_rewards.metrics.prediction import UNNAMED, Prediction
from grounding_rewards.metrics.robustness import ROBUSTNESS_METRICS
from grounding_rewards.report.evaluation_plots import plots_of
from grounding_rewards.report.page import (
    GUARD,
    Bar,
    Choice,
    Gallery,
    Histogram,
    Legend,
    Page,
    Section,
    Tile,
    choose_images,
    is_measured,
    jpeg_uri,
)
from grounding_rewards.report.plots import Plot
from grounding_rewards.report.tables import (
    Cell,
    Table,
    core_table,
    evaluation_table,
    metrics_table,
    robustness_rows,
    rows_of_groups,
)

if TYPE_CHECKING:
    from PIL.Image import Image

#: Longer side in pixels of an image on the page.
LONGEST_SIDE = 512
IMAGES_PER_GROUP = 12
#: Characters of all pictures together: there is room for those of every group.
PICTURE_BUDGET = 6_000_000
#: Pictures at most, however small: each must be opened.
MOST_PICTURES = 300
MOST_LISTED = 20_000
MOST_BOXES = 50
#: Labels of the confusion matrix; its note says how many are left out.
MOST_LABELS = 16
TEXT_BUDGET = 4_000_000
#: Rows of a table that is not folded.
MOST_ROWS = 12
_LEAST_TEXT, _MOST_TEXT = 160, 4_000

#: Tags of an answer in the filter of the page, beside its status and the reasons for which boxes were rejected.
HALLUCINATED = "box on a normal image"
MISSED_FINDING = "missed finding"
MISLABELLED = "wrong label"
MISPLACED = "box in the wrong place"
RIGHT_NORMAL = "normal image without a box"

#: Images of each kind at the head of the page.
FIRST_IMAGES = 3
_BINS = 10

_CORE_NOTE = (
    "95 % intervals beneath the values. ↓: lower is better. Above the constant box: the difference to a baseline that "
    "never looks. The reference as answer is the ceiling. ▲ marks what is better than the first system."
)
_ALL_NOTE = "▲ marks what is better than the first system."
# What can be clicked: beginnings of the keys of picks.
_LABEL, _CELL, _BIN = "label/", "cell/", "bin/"


@dataclass(frozen=True, kw_only=True)
class EvaluationPage:
    """What the report of an evaluation shows.

    Attributes:
        title: what was evaluated.
        subtitle: on which images.
        evaluation: the metrics.
        images: every image with its answer.
        reward: name of the reward that ranks the images, a key of their `rewards`.
        load_image: loads the image of ``images[i]``, given `i`, or returns None; called for those that are shown.
            Without it boxes are shown without images.
        label_matching: by which boxes are called right, as in the metrics.
        reference: the same images with the reference as answer: what they earn is the ceiling, 1 without them.
    """

    title: str
    subtitle: str
    evaluation: Evaluation
    images: Sequence[Prediction]
    reward: str
    load_image: Callable[[int], Image | None] | None = None
    label_matching: str = "ignore"
    reference: Sequence[Prediction] = ()

    @cached_property
    def plots(self) -> list[Plot]:
        """The plots of the metrics, each drawn once for the page and its files."""
        return plots_of(self.evaluation)

    @property
    def reward_names(self) -> list[str]:
        """The names of all rewards of the images, in order of first appearance."""
        return list(dict.fromkeys(name for image in self.images for name in image.rewards))


class _JudgedImage(NamedTuple):
    """An image with what became of its boxes, and the part of each reward that it earned of what it could."""

    image: Prediction
    outcomes: BoxOutcomes
    overlap: float | None
    ceilings: Mapping[str, float]

    def part(self, reward: str) -> float:
        """The reward as a part of what the reference itself would earn."""
        ceiling = self.ceilings.get(reward, 1.0)
        return self.image.rewards.get(reward, 0.0) / ceiling if ceiling > 0 else 1.0

    @property
    def is_unreadable(self) -> bool:
        return self.image.status == "unparseable" or (self.image.status == "truncated" and not len(self.image.pred))

    @property
    def tags(self) -> list[str]:
        """Status of the answer, what it is right or wrong about, and reasons for which boxes were rejected."""
        image, boxes = self.image, set(self.outcomes.pred) - {IGNORED}
        has_box = bool(boxes) or bool(image.broken)
        found = {
            HALLUCINATED: image.is_normal and has_box,
            RIGHT_NORMAL: image.is_normal and not has_box and image.status == "empty",
            MISSED_FINDING: MISSED in self.outcomes.gt,
            MISLABELLED: WRONG_LABEL in boxes,
            MISPLACED: not image.is_normal and WRONG_PLACE in boxes,
        }
        return [image.status, *(tag for tag, holds in found.items() if holds), *image.rejected]


def render_evaluation_page(page: EvaluationPage) -> str:
    """Render the report.

    Args:
        page: what it shows.

    Returns:
        An HTML document that refers to nothing outside itself and can be encoded in UTF-8.

    Example:
        >>> from grounding_rewards.metrics.evaluation import Measures, evaluate
        >>> image = Prediction("a", 10, 10, text="</script>", rewards={"R4": 0.2})
        >>> found = evaluate({"my model": [image]}, Measures("R4"))
        >>> page = EvaluationPage(title="my model", subtitle="one image", evaluation=found, images=[image], reward="R4")
        >>> render_evaluation_page(page).count("</script>")  # its own two: the data and the program
        2
    """
    found = page.evaluation
    drawn = {plot.name: plot for plot in page.plots}
    core = core_table(found, page.reward, note=_CORE_NOTE)
    every = evaluation_table(found, page.reward_names, note=_ALL_NOTE)

    def some(*names: str) -> list[Any]:
        return [drawn[name] for name in names if name in drawn]

    def tabled(
        title: str, rows: Mapping[str, Any], headings: Mapping[str, str], picked: Sequence[str] = ()
    ) -> list[Section]:
        made = metrics_table(rows, headings, first=title)
        names = [Cell(name, pick=_known(pick, picks)) for name, pick in zip_longest(rows, picked, fillvalue="")]
        lines = [[name, *row[1:]] for name, row in zip(names, made.rows, strict=True)]
        kind = "fold" if len(rows) > MOST_ROWS else ""
        return [Section(title, [made._replace(rows=lines)], kind=kind)] if made.header[1:] else []

    definitions = {one.heading: one.definition for one in found.metrics.values() if one.definition}
    meanings = Section("What each metric is", [definitions], kind="fold")
    matched = MatchedImages(page.images, page.label_matching)
    judged, picks = _judged(page, matched), _picks(page, matched)
    data = _data(page, judged) | {"picks": picks}
    records = _image_records([judged[place] for place in data["places"]], page.reward_names)
    listed = "all" if len(data["places"]) == len(judged) else f"{len(data['places']):,}"
    shown = f"Pictures of {len(data['pictures']):,} of {len(judged):,} images; the table below lists {listed} of them."
    labels = [_LABEL + group.name for group in found.per_label]
    facts = {name: str(value) for name, value in found.facts.items() if value != ""}
    return Page(
        title=page.title,
        subtitle=page.subtitle,
        verdict=found.looking,
        tiles=_tiles(page),
        sections=[
            Section("Metrics", [core, Section("All metrics", [every], kind="fold"), meanings] if every.rows else []),
            Section("Curves", [*some("precision_recall", "froc", "calibration"), *_ious(found.ious, picks)]),
            Section(
                "By label, size and source" if found.per_source else "By label and size",
                [
                    *some("per_label", "per_size"),
                    *tabled("Labels", rows_of_groups(found.per_label), found.headings, labels),
                    *tabled("Sizes", rows_of_groups(found.per_size), found.headings),
                    *tabled("Sources", rows_of_groups(found.per_source), found.headings),
                    *_confusion(found.confusion, picks),
                ],
            ),
            Section(
                "Robustness",
                [
                    *some("robustness_corruptions", "robustness_pgd"),
                    *tabled("Robustness as a table", robustness_rows(found.robustness), ROBUSTNESS_METRICS),
                ],
            ),
            Section("Images", [Legend(page.label_matching), Gallery(data, records)] if judged else [], shown),
            Section("How it was measured", [facts] if facts else []),
        ],
        footer=GUARD,
        style="evaluation_page.css",
        script="evaluation_page.js",
    ).render()


def _judged(page: EvaluationPage, matched: MatchedImages) -> list[_JudgedImage]:
    ceilings = [image.rewards for image in page.reference] or [{}] * len(page.images)
    ious, there = matched.best_ious
    return [
        _JudgedImage(image, outcomes, None if image.is_normal else float(own[boxes].mean()), most)
        for image, outcomes, own, boxes, most in zip(
            page.images, outcomes_of(matched), ious, there, ceilings, strict=True
        )
    ]


def _picks(page: EvaluationPage, matched: MatchedImages) -> dict[str, tuple[str, list[int]]]:
    """What can be clicked to see its images: labels, cells of the confusion, bins of the overlap."""
    numbers = np.repeat(np.arange(len(page.images)), [len(image.gt) for image in page.images])

    def images(chosen: Any) -> list[int]:
        return np.unique(numbers[chosen]).tolist()

    compared = "exact" if page.label_matching == "ignore" else page.label_matching
    picks = {
        _LABEL + (name or UNNAMED): (f"reference {name or UNNAMED}", images(members))
        for name, members in label_groups(page.images, compared).items()
    }
    if page.evaluation.confusion is not None:
        rows: dict[str, set[int]] = defaultdict(set)
        for (gt, pred), places in page.evaluation.confusion.places.items():
            picks[f"{_CELL}{gt}/{pred}"] = (f"reference {gt}, predicted {pred}", [*places])
            rows[gt].update(places)
        picks |= {_CELL + gt: (f"reference {gt}", sorted(row)) for gt, row in rows.items()}
    best, there = matched.best_ious
    bins = _bins(best[there])
    names = ("no partner", *(f"IoU {k / _BINS:g} to {(k + 1) / _BINS:g}" for k in range(_BINS)))
    picks |= {f"{_BIN}{k}": (name, images(bins == k)) for k, name in enumerate(names) if (bins == k).any()}
    return picks


def _bins(ious: NDArray[np.float64]) -> NDArray[np.int64]:
    """0 for no partner, else the number of the tenth, from 1."""
    return np.where(ious <= 0, 0, np.minimum(np.digitize(ious, np.arange(_BINS + 1) / _BINS), _BINS))


def _ious(ious: NDArray[np.float64], picks: Mapping[str, Any]) -> list[Histogram]:
    if not len(ious):
        return []
    counts = np.bincount(_bins(ious), minlength=_BINS + 1).tolist()
    names = ("none", *(f"{k / _BINS:g}–{(k + 1) / _BINS:g}" for k in range(_BINS)))
    bars = [Bar(name, n, _known(f"{_BIN}{k}", picks)) for k, (name, n) in enumerate(zip(names, counts, strict=True))]
    shares = ", ".join(f"{100 * np.mean(ious >= at):.1f} % from {at:g} up" for at in (0.5, 0.75))
    note = f"{len(ious):,} reference boxes: {shares}; {100 * np.mean(ious <= 0):.1f} % have no partner. Mean "
    note += f"{np.mean(ious):.3f}. A click on a bar shows its images."
    return [Histogram("IoU of a reference box with its partner", note, bars)]


def _confusion(confusion: Confusion | None, picks: Mapping[str, Any]) -> list[Section]:
    if confusion is None or not np.sum(confusion.counts):
        return []
    rows, columns = (_commonest(confusion.counts.sum(axis=axis)) for axis in (1, 0))
    lines = []
    for i in rows:
        gt, total = confusion.gt[i], max(1, confusion.counts[i, columns].sum())
        cells = [
            Cell(
                str(count or ""),
                kind=f"shade-{math.ceil(10 * count / total)}" if count else "",
                pick=_known(f"{_CELL}{gt}/{confusion.pred[j]}", picks),
            )
            for j in columns
            for count in [int(confusion.counts[i, j])]
        ]
        lines.append([Cell(gt, pick=_known(_CELL + gt, picks)), *cells])
    header = ["reference", *(confusion.pred[j] for j in columns)]
    left = max(len(confusion.gt) - len(rows), len(confusion.pred) - len(columns))
    note = (
        "Boxes are paired by their overlap alone, whatever their labels; colour: share of the row. “nothing” to the "
        "right: reference boxes without a partner; below: predicted boxes without one. Columns: predicted. A click "
        "shows the images." + (f" The {left} rarest labels are left out." if left else "")
    )
    return [Section("Confusion of labels", [Table(header, lines)], note, kind="matrix")]


def _commonest(totals: NDArray[np.int64]) -> list[int]:
    """The labels that occur most often, in their own order, and `nothing`, which is the last."""
    return [*sorted(np.argsort(-totals[:-1], kind="stable")[:MOST_LABELS].tolist()), len(totals) - 1]


def _known(pick: str, picks: Mapping[str, Any]) -> str:
    return pick if pick in picks else ""


def _groups(judged: Sequence[_JudgedImage], reward: str, ranked: Sequence[int]) -> list[Choice]:
    """The images of the gallery: failures first; each kind of them says how many there are."""
    tags = [set(one.tags) for one in judged]
    unreadable = [place for place, one in enumerate(judged) if one.is_unreadable]

    def having(tag: str) -> list[int]:
        return [place for place, one in enumerate(judged) if tag in tags[place] and not one.is_unreadable]

    def share(title: str, places: Sequence[int], of: int, what: str) -> Choice:
        part = f"{len(places)} ({100 * len(places) / of:.1f} %)" if of else "0"
        return Choice(title, f"{part} of {of} {what}; an even selection over the dataset.", places)

    missed, n, normal = having(MISSED_FINDING), len(ranked), len(judged) - len(ranked)
    mislabelled = [place for place in having(MISLABELLED) if MISSED_FINDING not in tags[place]]
    complete = [place for place in ranked if place not in {*missed, *mislabelled, *unreadable}]
    found, half = f"{len(complete)} of {n} images with findings have every finding found", len(complete) // 2
    wanted = [
        share("Missed", missed, n, "images with findings have a finding that no box is right about"),
        share("Wrong label", mislabelled, n, "images with findings miss none, but call one something else"),
        share("Hallucinated", having(HALLUCINATED), normal, "normal images have a box, where nothing is to be found"),
        share("Unparseable", unreadable, len(judged), "answers hold neither a complete box nor a no-finding statement"),
        Choice("Worst of the complete", f"{found}; here the lowest {reward}: loose boxes.", complete[:half], "first"),
        Choice("Best", f"{found}; here the highest {reward}.", complete[half:][::-1], "first"),
        Choice("Typical", f"From the middle of the {n} images with findings by {reward}.", ranked, "middle"),
        share("Right normal images", having(RIGHT_NORMAL), normal, "normal images have no box, as it should be"),
    ]
    return choose_images(wanted, IMAGES_PER_GROUP)


def _tiles(page: EvaluationPage) -> list[Tile]:
    """What a reader asks first: what is found, what is false, what normal images get, else the reward."""
    metrics, constant = next(iter(page.evaluation.systems.values()), {}), page.evaluation.constant
    images = page.images
    tiles = []
    for key, of, note in (
        ("recall_50", sum(len(image.gt) for image in images), "of {} reference boxes found"),
        ("false_per_film", len(images), "false boxes on {} images"),
        ("hallucination_rate", sum(image.is_normal for image in images), "of {} normal images have a box"),
        (f"reward_{page.reward}", 0, ""),
    ):
        if is_measured(metrics.get(key)):
            said = [f"{round(metrics[key][0] * of):,} {note.format(format(of, ','))}"] if of else []
            if is_measured(constant.get(key)):
                said.append(f"constant box: {format_value(constant[key][0])}")
            heading = page.evaluation.headings[key]
            tiles.append(Tile(heading, format_value(metrics[key][0]), format_interval(metrics[key]), "; ".join(said)))
    return tiles[:3]


def _data(page: EvaluationPage, judged: Sequence[_JudgedImage]) -> dict[str, Any]:
    # Worst first.
    ordered = sorted(range(len(judged)), key=lambda place: judged[place].part(page.reward))
    ranked = [place for place in ordered if not judged[place].image.is_normal]
    groups = _groups(judged, page.reward, ranked)
    # What is asked for first is what is drawn first.
    first = choose_images([Choice("Worst", "", ranked, "first"), Choice("Typical", "", ranked, "middle")], FIRST_IMAGES)
    chosen = list(dict.fromkeys(place for group in (*first, *groups) for place in group.places))
    pictures = _pictures(page, list(dict.fromkeys([*chosen, *ordered])))
    listed = sorted({*range(min(MOST_LISTED, len(judged))), *chosen, *pictures})
    return {
        "rewards": page.reward_names,
        "reward": page.reward,
        "total": len(judged),
        "first": [{"title": one.title, "images": one.places} for one in first],
        "groups": [{"title": one.title, "note": one.note, "images": one.places} for one in groups],
        "pictures": {str(place): uri for place, uri in pictures.items()},
        "places": listed,
    }


def _pictures(page: EvaluationPage, wanted: Sequence[int]) -> dict[int, str]:
    """Of the images in this order, until the budget is spent."""
    pictures: dict[int, str] = {}
    left = PICTURE_BUDGET
    for place in wanted[:MOST_PICTURES]:
        image = None if page.load_image is None else page.load_image(place)
        if image is None:
            continue
        uri = jpeg_uri(image, LONGEST_SIDE)
        left -= len(uri)
        if left < 0:
            break
        pictures[place] = uri
    return pictures


def _image_records(judged: Sequence[_JudgedImage], rewards: Sequence[str]) -> Iterator[dict[str, Any]]:
    most = min(_MOST_TEXT, max(_LEAST_TEXT, TEXT_BUDGET // max(1, len(judged))))

    def boxes(all_boxes: Any, *columns: Sequence[Any]) -> list[list[Any]]:
        """For each box its corners, None for what is not finite, and what else is known of it, a column each."""
        corners = ([_rounded(corner) for corner in box] for box in all_boxes[:MOST_BOXES].tolist())
        return [[*box, *others] for box, *others in zip(corners, *columns, strict=False)]

    for one in judged:
        image, outcomes, overlap, ceilings = one
        scores = [_rounded(score, 4) for score in image.pred_scores.tolist()]
        gt_ious, ious = ([*map(format_iou, one.tolist())] for one in (outcomes.gt_ious, outcomes.pred_ious))
        others = [label or renamed for label, renamed in zip(outcomes.labels, outcomes.renamed, strict=True)]
        yield {
            "id": image.id,
            "patient": image.patient,
            "view": image.view,
            "sides": has_sides(image),
            "size": [_rounded(image.width), _rounded(image.height)],
            "gt": boxes(image.gt, image.gt_labels, outcomes.gt, gt_ious),
            "pred": boxes(image.pred, image.pred_labels, outcomes.pred, ious, scores, others),
            "ignore": boxes(image.ignore),
            "n": [len(image.gt), len(image.pred)],
            "overlap": _rounded(overlap, 4),
            "tags": one.tags,
            "summary": image_summary(image, outcomes),
            "reason": image.reason,
            "rewards": [_rounded(image.rewards.get(name), 4) for name in rewards],
            "ceilings": [_rounded(ceilings.get(name, 1.0), 4) for name in rewards],
            "sampled": [_rounded(reward, 4) for reward in image.sampled_rewards],
            "text": image.text[:most],
            "cut": max(0, len(image.text) - most),
        }


def _rounded(value: float | None, digits: int = 1) -> float | int | None:
    if value is None or not math.isfinite(value):
        return None
    rounded = round(value, digits)
    return int(rounded) if rounded == int(rounded) else rounded
