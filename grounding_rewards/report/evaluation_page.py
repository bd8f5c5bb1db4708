"""The report of an evaluation as one HTML file, and the folder of all its files.

The report has metrics with intervals, plots, images with boxes, every reward.

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
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from grounding_rewards.common.atomic_files import check_settings, whole_folder, write_whole
from grounding_rewards.common.formatting import counted
from grounding_rewards.metrics.evaluation import Evaluation, read_evaluation, write_evaluation
from grounding_rewards.metrics.outcomes import (
    IGNORED,
    MISSED,
    WRONG_LABEL,
    WRONG_PLACE,
    BoxOutcomes,
    format_iou,
    image_summary,
    outcomes_of,
)
from grounding_rewards.metrics.prediction import Prediction, is_read, save_predictions
from grounding_rewards.report import page as html
from grounding_rewards.report import tables
from grounding_rewards.report.plots import Plot, iou_plot, write_plots

if TYPE_CHECKING:
    from PIL.Image import Image

#: Longer side in pixels of an image on the page.
LONGEST_SIDE = 512
#: Images of each group of the gallery, and of each kind at the top of the page.
IMAGES_PER_GROUP, LEADS_PER_KIND = 12, 3
#: Characters of all pictures together: there is room for those of every group.
PICTURE_BUDGET = 6_000_000
#: Pictures at most, however small: each must be opened.
MOST_PICTURES = 300
MOST_LISTED = 20_000
MOST_BOXES = 50
TEXT_BUDGET = 4_000_000
#: Rows of a table that is not folded.
MOST_ROWS = 12
_LEAST_TEXT, _MOST_TEXT = 160, 4_000

#: Tags of an answer in the filter of the page, with its status and the reasons for which boxes were rejected.
HALLUCINATED = "box on a normal image"
MISSED_FINDING = "missed finding"
MISLABELLED = "wrong label"
MISPLACED = "box in the wrong place"
RIGHT_NORMAL = "normal image without a box"

_CORE_NOTE = (
    "95 % intervals beneath the values. ↓: lower is better. Above the constant box: the difference to a baseline that "
    "never looks. The reference as answer is the ceiling."
)


@dataclass(frozen=True, kw_only=True)
class EvaluationPage:
    """The contents of the report of an evaluation.

    Attributes:
        title: what was evaluated.
        subtitle: on which images.
        evaluation: the metrics, and every image with its answer.
        reward: name of the reward that ranks the images, a key of their `rewards`.
        load_image: loads the image of ``evaluation.images[i]``, given `i`, or returns None; called for those that are
            shown. Without it boxes are shown without images.
        reference: the same images with the reference as answer: what they earn is the ceiling, 1 without them.
    """

    title: str
    subtitle: str
    evaluation: Evaluation
    reward: str
    load_image: Callable[[int], Image | None] | None = None
    reference: Sequence[Prediction] = ()

    @cached_property
    def plots(self) -> list[Plot]:
        """The plots of the metrics, each drawn once for the page and its files."""
        return [iou_plot(self.evaluation.ious)] if len(self.evaluation.ious) else []

    @property
    def reward_names(self) -> list[str]:
        """The names of all rewards of the images, in order of first appearance."""
        return list(dict.fromkeys(name for image in self.evaluation.images for name in image.rewards))


class _ScoredImage(NamedTuple):
    """An image with the outcomes of its boxes, and the reward that its reference would earn.

    overlap: mean IoU of the reference boxes with their partners; None on a normal image.
    ceilings: rewards of the reference as answer, by name.
    """

    image: Prediction
    outcomes: BoxOutcomes
    overlap: float | None
    ceilings: Mapping[str, float]

    def fraction(self, reward: str) -> float:
        """The reward as a fraction of the reward that the reference itself would earn."""
        ceiling = self.ceilings.get(reward, 1.0)
        return self.image.rewards.get(reward, 0.0) / ceiling if ceiling > 0 else 1.0

    @property
    def tags(self) -> list[str]:
        """Status of the answer, its successes and mistakes, and reasons for which boxes were rejected."""
        image, counted_outcomes = self.image, set(self.outcomes.pred) - {IGNORED}
        # A box that cannot be read is still a claim that something is to be found.
        has_box = bool(counted_outcomes) or bool(image.broken)
        tag_flags = {
            HALLUCINATED: image.is_normal and has_box,
            RIGHT_NORMAL: image.is_normal and not has_box and image.status == "empty",
            MISSED_FINDING: MISSED in self.outcomes.gt,
            MISLABELLED: WRONG_LABEL in counted_outcomes,
            # On a normal image there is no right place: every box is hallucinated.
            MISPLACED: not image.is_normal and WRONG_PLACE in counted_outcomes,
        }
        set_tags = [tag for tag, is_set in tag_flags.items() if is_set]
        return [image.status, *set_tags, *image.rejected]


def render_evaluation_page(page: EvaluationPage) -> str:
    """Render the report.

    Args:
        page: what it shows.

    Returns:
        An HTML document that refers to nothing outside itself and can be encoded in UTF-8.

    Example:
        >>> from grounding_rewards.metrics.evaluation import Measures, evaluate
        >>> image = Prediction("a", 10, 10, text="</script>", rewards={"R4": 0.2})
        >>> evaluation = evaluate({"my model": [image]}, Measures("R4"))
        >>> page = EvaluationPage(title="my model", subtitle="one image", evaluation=evaluation, reward="R4")
        >>> render_evaluation_page(page).count("</script>")  # its own two: the data and the program
        2
    """
    evaluation = page.evaluation
    robustness = tables.robustness_table(evaluation.robustness)
    facts = {name: str(value) for name, value in evaluation.facts.items() if value != ""}
    return html.Page(
        title=page.title,
        subtitle=page.subtitle,
        # Whether the answers are better than those of a model that never looks.
        verdict=evaluation.looking,
        sections=[
            html.Section("Metrics", _metrics(page)),
            html.Section("Overlap", page.plots),
            html.Section("By label, size and source", _groups_of_boxes(page)),
            html.Section("Robustness", _folded("Changed images", robustness)),
            _gallery(page),
            html.Section("How it was measured", [facts] if facts else []),
        ],
        footer=html.GUARD,
        style="evaluation_page.css",
        script="evaluation_page.js",
    ).render()


def _metrics(page: EvaluationPage) -> list[Any]:
    """The blocks of metrics: the core as a table, then all and their definitions, folded; none without metrics."""
    evaluation = page.evaluation
    all_metrics = tables.evaluation_table(evaluation)
    definitions = {metric.heading: metric.definition for metric in evaluation.metrics.values() if metric.definition}
    blocks = [
        tables.core_table(evaluation, page.reward, note=_CORE_NOTE),
        html.Section("All metrics", [all_metrics], kind="fold"),
        html.Section("What each metric is", [definitions], kind="fold"),
    ]
    return blocks if all_metrics.rows else []


def _groups_of_boxes(page: EvaluationPage) -> list[Any]:
    """The blocks of metrics by label, size and source."""
    evaluation = page.evaluation
    blocks: list[Any] = []
    groups_by_title = {"Labels": evaluation.per_label, "Sizes": evaluation.per_size, "Sources": evaluation.per_source}
    for title, groups in groups_by_title.items():
        blocks += _folded(title, tables.groups_table(groups, evaluation.headings, title))
    return blocks


def _gallery(page: EvaluationPage) -> html.Section:
    """The section of the images, which the script in the page draws from data and records; empty without images."""
    images = _scored_images(page)
    data = _data(page, images)
    # Of a large evaluation only some images have a record and a row in the table.
    recorded = [images[place] for place in data["recorded"]]
    records = _image_records(recorded, page.reward_names)
    listed = "all" if len(recorded) == len(images) else f"{len(recorded):,}"
    note = f"Pictures of {len(data['pictures']):,} of {len(images):,} images; the table below lists {listed} of them."
    if not data["pictures"]:
        note += " Without pictures boxes are drawn alone: `--dataset` names the dataset that has the images."
    blocks = [html.Legend(page.evaluation.matched.label_matching), html.Gallery(data, records)]
    return html.Section("Images", blocks if images else [], note)


def _folded(title: str, table: tables.Table) -> list[html.Section]:
    """A list of one section with the table, folded if it is long; an empty list if the table has no metrics."""
    kind = "fold" if len(table.rows) > MOST_ROWS else ""
    # The first column has the names of the rows, all others have metrics.
    return [html.Section(title, [table], kind=kind)] if table.header[1:] else []


def _scored_images(page: EvaluationPage) -> list[_ScoredImage]:
    """All images of the page with the outcomes of their boxes and their ceilings."""
    matched = page.evaluation.matched
    # What the reference as answer earns on each image; nothing is known of it where the page has no such answers.
    ceilings = [image.rewards for image in page.reference] or [{}] * len(matched.images)
    outcomes = outcomes_of(matched)
    # Arrays with a row for each image, padded to the most boxes: the mask says which cells hold a reference box.
    ious, is_box = matched.best_ious
    scored = []
    for place, image in enumerate(matched.images):
        overlap = None if image.is_normal else float(ious[place][is_box[place]].mean())
        scored.append(_ScoredImage(image, outcomes[place], overlap, ceilings[place]))
    return scored


def _groups(images: Sequence[_ScoredImage], reward: str, worst_first: Sequence[int]) -> list[html.Choice]:
    """The groups of images in the gallery, failures first; the note of each says how many images are of its kind.

    `worst_first` are the indices, in `images`, of those with findings, the worst by the reward first.
    """
    tagged: dict[str, list[int]] = defaultdict(list)
    unreadable = []
    for place, scored in enumerate(images):
        # An answer that says nothing misses every finding too, but is shown in its own group alone.
        if not is_read(scored.image.pred, scored.image.status):
            unreadable.append(place)
            continue
        for tag in scored.tags:
            tagged[tag].append(place)
    missed = tagged[MISSED_FINDING]
    # A missed finding is the worse mistake: an image with both is in its group.
    mislabelled = sorted(set(tagged[MISLABELLED]) - set(missed))
    with_findings, normal = len(worst_first), len(images) - len(worst_first)

    def even(title: str, places: Sequence[int], total: int, description: str) -> html.Choice:
        """The choice of an even selection of these images; its note gives their share of a total."""
        part = f"{len(places)} ({100 * len(places) / total:.1f} %)" if total else "0"
        return html.Choice(title, f"{part} of {total} {description}; an even selection over the dataset.", places)

    typical_note = f"From the middle of the {with_findings} images with findings by {reward}."
    choices = [
        even("Missed", missed, with_findings, "images with findings have a finding that no box is right about"),
        even("Wrong label", mislabelled, with_findings, "images with findings miss none, but call one something else"),
        even("Hallucinated", tagged[HALLUCINATED], normal, "normal images have a box, where nothing is to be found"),
        even("Unparseable", unreadable, len(images), "answers hold neither a complete box nor a no-finding statement"),
        html.Choice("Typical", typical_note, worst_first, "middle"),
        even("Right normal images", tagged[RIGHT_NORMAL], normal, "normal images have no box, as it should be"),
    ]
    return html.choose_images(choices, IMAGES_PER_GROUP)


def _data(page: EvaluationPage, images: Sequence[_ScoredImage]) -> dict[str, Any]:
    """What the script in the page must know to show images, each of which it names by its index in `images`.

    `leads` are a few images at the top of the page, `groups` those of the gallery; `recorded` are the images that have
    a record, see :func:`_image_records`: the first :data:`MOST_LISTED`, and all that are shown.
    """
    worst_first = sorted(range(len(images)), key=lambda place: images[place].fraction(page.reward))
    with_findings = [place for place in worst_first if not images[place].image.is_normal]
    groups = _groups(images, page.reward, with_findings)
    kinds = [html.Choice("Worst", "", with_findings, "first"), html.Choice("Typical", "", with_findings, "middle")]
    leads = html.choose_images(kinds, LEADS_PER_KIND)
    chosen_places = [place for choice in (*leads, *groups) for place in choice.places]
    # A page has room for so many pictures: the chosen images get theirs first.
    pictures = _pictures(page, list(dict.fromkeys([*chosen_places, *worst_first])))
    return {
        "rewards": page.reward_names,
        "reward": page.reward,
        "total": len(images),
        "leads": [{"title": choice.title, "images": choice.places} for choice in leads],
        "groups": [{"title": choice.title, "note": choice.note, "images": choice.places} for choice in groups],
        "pictures": {str(place): uri for place, uri in pictures.items()},
        "recorded": sorted({*range(min(MOST_LISTED, len(images))), *chosen_places, *pictures}),
    }


def _pictures(page: EvaluationPage, places: Sequence[int]) -> dict[int, str]:
    """The pictures of the images at these indices as data URIs, by index, until the budget of characters is spent."""
    pictures: dict[int, str] = {}
    characters = 0
    for place in places[:MOST_PICTURES]:
        image = None if page.load_image is None else page.load_image(place)
        if image is None:
            continue
        uri = html.jpeg_uri(image, LONGEST_SIDE)
        characters += len(uri)
        if characters > PICTURE_BUDGET:
            break
        pictures[place] = uri
    return pictures


def _image_records(images: Sequence[_ScoredImage], rewards: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Yield a record of each image as JSON values, by the keys that the script in the page reads."""
    # All images share the budget of characters equally.
    text_length = min(_MOST_TEXT, max(_LEAST_TEXT, TEXT_BUDGET // max(1, len(images))))

    def boxes(corners: Any, *columns: Sequence[Any]) -> list[list[Any]]:
        """A list for each box that is shown: its four corners, then its value in every column, such as its label."""
        # Columns may be longer: they have the boxes that are not shown too.
        rows = zip(corners[:MOST_BOXES].tolist(), *columns, strict=False)
        return [[*map(_rounded, box), *values] for box, *values in rows]

    for scored in images:
        image, outcomes = scored.image, scored.outcomes
        confidences = [_rounded(score, 4) for score in image.pred_scores.tolist()]
        gt_ious = [format_iou(iou) for iou in outcomes.gt_ious.tolist()]
        pred_ious = [format_iou(iou) for iou in outcomes.pred_ious.tolist()]
        yield {
            "id": image.id,
            "patient": image.patient,
            "view": image.view,
            "size": [_rounded(image.width), _rounded(image.height)],
            "gt": boxes(image.gt, image.gt_labels, outcomes.gt, gt_ious),
            "pred": boxes(image.pred, image.pred_labels, outcomes.pred, pred_ious, confidences, outcomes.other_labels),
            "ignore": boxes(image.ignore),
            # How many there are in all, where not all are shown.
            "n": [len(image.gt), len(image.pred)],
            "overlap": _rounded(scored.overlap, 4),
            "tags": scored.tags,
            "summary": image_summary(image, outcomes),
            "reason": image.reason,
            "rewards": [_rounded(image.rewards.get(name), 4) for name in rewards],
            "ceilings": [_rounded(scored.ceilings.get(name, 1.0), 4) for name in rewards],
            "sampled": [_rounded(reward, 4) for reward in image.sampled_rewards],
            "text": image.text[:text_length],
            # Characters of the text that are left out.
            "cut": max(0, len(image.text) - text_length),
        }


def _rounded(value: float | None, digits: int = 1) -> float | int | None:
    """The value for JSON: rounded, whole numbers without a fraction; None for what is not finite."""
    if value is None or not math.isfinite(value):
        return None
    rounded = round(value, digits)
    return int(rounded) if rounded == int(rounded) else rounded


def check_evaluation_folder(folder: Path, command: str) -> None:
    """Refuse a folder with the evaluation of another command, which would be lost; the same command may write again.

    Args:
        folder: to be written.
        command: options of the evaluation that is to be written.

    Raises:
        ValueError: the folder is a file, or holds the evaluation of another command.
    """
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"Expected a folder for --out, got the file {str(folder)!r}. Give another name.")
    files = [name for name in ("evaluation.json", "images.jsonl", "report.html") if (folder / name).exists()]
    if files:
        # Where no command is known, words that are no command differ from every command.
        previous_command = read_evaluation(folder).command or f"{files[0]} of another one"
        remedy = "Name another folder, or replace what is there with --overwrite."
        check_settings(folder, stored={"evaluate": previous_command}, settings={"evaluate": command}, remedy=remedy)


def write_evaluation_folder(folder: Path, page: EvaluationPage) -> None:
    """Write all files of an evaluation, or none: what the folder held before stays until all are there.

    Args:
        folder: to write to, which is made if it is not there.
        page: the contents of the report, with the metrics and images of the other files.
    """
    with whole_folder(folder) as unfinished:
        save_predictions(unfinished / "images.jsonl", page.evaluation.images)
        write_evaluation(unfinished, page.evaluation)
        plot_names = {path.name for path in write_plots(page.plots, unfinished / "metrics")}
        write_whole(unfinished / "report.html", render_evaluation_page(page))
    for path in (folder / "metrics").iterdir():
        if path.name not in plot_names:
            # The plot of an earlier evaluation, which had other metrics.
            path.unlink()


def evaluated_images(facts: Mapping[str, Any]) -> str:
    """Say in words how many images an evaluation has, where they are from, and what is on them.

    Args:
        facts: of the evaluation.

    Example:
        >>> counts = {"images": 8, "patients": 3, "images without a finding": 2, "reference boxes": 9}
        >>> evaluated_images({**counts, "dataset": "data/vindr", "split": "test"})
        '8 images of 3 patients of vindr (test), 2 without a finding, 9 reference boxes'
        >>> counts |= {"patients": 1, "images whose patient is not known": 5}
        >>> evaluated_images({**counts, "dataset": "data/vindr", "split": ""})
        '8 images of 1 patient and unknown ones of vindr, 2 without a finding, 9 reference boxes'
    """
    split = f" ({facts['split']})" if facts["split"] else ""
    # Words in the place of the number say that no patient is known.
    patients = f" of {counted(facts['patients'], 'patient')}" if isinstance(facts["patients"], int) else ""
    patients += " and unknown ones" if "images whose patient is not known" in facts else ""
    # The name of the dataset alone: its path is among the facts.
    return (
        f"{facts['images']} images{patients} of {Path(facts['dataset']).name}{split}, "
        f"{facts['images without a finding']} without a finding, {facts['reference boxes']} reference boxes"
    )
