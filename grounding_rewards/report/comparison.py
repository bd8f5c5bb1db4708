"""The comparison of two runs as tables in the terminal, as JSON and as a page.

The page has a few images with the boxes of both runs first, then what changed, the reward in training, more images, and
the metrics side by side.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grounding_rewards.common.formatting import NO_VALUE, format_value
from grounding_rewards.logs.run_log import LOG, first_and_last, read_entries, trained_reward
from grounding_rewards.metrics import confusion
from grounding_rewards.metrics.comparison import (
    DRAWS,
    LEVEL,
    MAIN_METRIC,
    Change,
    RunDifference,
    check_metric,
    compare_runs,
    p_cell,
)
from grounding_rewards.metrics.evaluation import CORE_METRICS, StoredEvaluation, read_evaluation
from grounding_rewards.metrics.intervals import format_estimate
from grounding_rewards.metrics.prediction import Prediction, load_predictions
from grounding_rewards.report import page as html
from grounding_rewards.report.plots import read_series, reward_plot
from grounding_rewards.report.tables import Cell, Table, estimate_cell, group_metrics, kind_of

if TYPE_CHECKING:
    from PIL.Image import Image
    from rich.console import Console

    LoadImage = Callable[[Prediction], Image | None]

_LONGEST_FACT = 80
#: The rule for better and worse, and the signs of the tables.
CAPTION = (
    "Better or worse: the 95 % interval of the change excludes 0, and Holm's p over the metrics shown is below "
    f"{LEVEL:g}; else no change is shown. ↓: lower is better."
)
#: Longest side in pixels of an image on the page; with the number of images it bounds the size of the file.
LONGEST_SIDE = 448
IMAGES_PER_SECTION = 6
_MOST_TEXT = 4_000

# Findings that have an image at the head of the page.
_FINDINGS_FIRST = 4
_WORST_LOSS = "worst loss"

#: The same image as each run answered it, A first.
SharedImage = tuple[Prediction, Prediction]


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """The report of `grounding-rewards diff` on two runs, A and B, in the terminal and in every file.

    Attributes:
        difference: of B from A.
        paths: of the runs.
        names: of the runs, see :func:`run_names`.
        metrics: keys of the metrics that both have, or of those that were chosen, in order.
        images: of each run.
        run_facts: what is known of how each run was made.
        reward: name of the reward by which images are chosen.
        log: what the training of B logged; empty where no training is known.
    """

    difference: RunDifference
    paths: Sequence[Path]
    names: Sequence[str]
    metrics: Sequence[str]
    images: Sequence[Sequence[Prediction]]
    run_facts: Sequence[Mapping[str, Any]]
    reward: str = "R4"
    log: Sequence[Mapping[str, Any]] = ()

    @property
    def training_reward(self) -> str:
        """The change of the reward in the training, as in `0.433 → 0.565, first and last 10 of 200`."""
        rewards = read_series(self.log, "reward")
        return "" if rewards is None else first_and_last(rewards.y.tolist())

    @property
    def title(self) -> str:
        """The runs and the change of the metric of the verdict, as in `GRPO with R4: mean IoU 0.63 → 0.69`."""
        change = self.difference.metrics[self.difference.main]
        values = [NO_VALUE if math.isnan(value) else f"{value:.2f}" for value in (change.a.value, change.b.value)]
        before, after = map(_trained, self.run_facts)
        if not after or before == after:
            before, after = self.names
        compared = f"{after} against {before}" if before else after
        return f"{compared}: {change.metric.heading} {' → '.join(values)}"

    @property
    def core(self) -> list[str]:
        """Keys of the metrics that are shown first: those that were chosen, or the core."""
        keys = []
        for key in self.difference.core:
            change = self.difference.metrics[key]
            if key in self.metrics and not (math.isnan(change.a.value) and math.isnan(change.b.value)):
                keys.append(key)
        return keys

    @property
    def facts(self) -> list[str]:
        """Facts of the runs and of the comparison, a line each."""
        difference, (a, b) = self.difference, self.names
        patients = f" of {difference.n} patients" if difference.units == "patients" else ""
        lines = [f"{name}: {path}" for name, path in zip(self.names, self.paths, strict=True) if name != str(path)]
        alone = ""
        if difference.only_a or difference.only_b:
            alone = f"; {difference.only_a} only in {a} and {difference.only_b} only in {b} play no part"
        lines.append(f"{difference.images} images{patients} in both{alone}")
        lines.append(f"{difference.resamples} draws of {difference.units}, seed {difference.seed}")
        lines.append(f"labels of boxes: {difference.label_matching} (--label-matching)")
        for name, (fact_a, fact_b) in facts_that_differ(*self.run_facts).items():
            lines.append(f"{name}: {fact_a} in {a}, {fact_b} in {b}")
        return lines

    def to_dict(self) -> dict[str, Any]:
        """The comparison as plain values."""
        a, b = map(str, self.paths)
        return {"a": a, "b": b, **self.difference.to_dict()}

    def table(self, keys: Sequence[str]) -> Table:
        """A line for each of these metrics, in groups."""
        rows: list[list[str | Cell]] = []
        for group, members in group_metrics(keys).items():
            rows.append([group])
            for key in members:
                change = self.difference.metrics[key]
                arrow = " ↓" if change.metric.lower_is_better else ""
                rows.append(_line(change.metric.heading + arrow, change))
        return Table(self._header, rows)

    @property
    def label_table(self) -> Table:
        """Lines for each label of the reference boxes; none without such boxes."""
        rows: list[list[str | Cell]] = []
        for group in self.difference.labels:
            for change in group.changes.values():
                rows.append(_line(f"{group.name} ({group.boxes}), {change.metric.heading}", change))
        return Table(self._header, rows, "Reference boxes by label")

    @property
    def _header(self) -> list[str | Cell]:
        """The header of every table of changes."""
        return ["metric", *self.names, Cell("change", "better / worse / same")]

    @property
    def tests_caption(self) -> str:
        """The small print beneath the changes, and the tests that Holm's p accounts for."""
        units = self.difference.units
        return (
            f"Better / worse / same: on how many {units}. p: two-sided, of a permutation test in which the runs change "
            f"places on {units}. Holm: p adjusted for the metrics that are shown, for all others, or for labels."
        )

    def print(self, console: Console, *, every: bool = False) -> None:
        """Print the tables, which fit into 80 columns, and the verdict at the end, where it is seen.

        Args:
            console: a ``rich.console.Console``.
            every: whether to print all metrics, labels and tests, not the core alone.
        """
        from rich.text import Text

        console.print(Text("\n".join(self.facts)))
        if every:
            tables = [self.table(self.metrics)]
            if self.difference.labels:
                tables.append(self.label_table)
            for table in tables:
                # Names alone are broken into lines, as a metric has several anyway.
                console.print(table.rich(unbroken=range(1, len(table.header))))
            legend = self.tests_caption
        else:
            console.print(self.table(self.core).rich(small=False))
            legend = "--all: every metric, labels and tests."
        console.print(Text(f"{CAPTION} {legend}", style="dim"))
        console.print(Text(self.difference.verdict, style="bold"))
        if self.training_reward:
            console.print(Text(f"Reward in training {self.training_reward} steps."))

    def to_dataframe(self) -> Any:
        """A ``pandas.DataFrame`` with a row for each metric."""
        return self.difference.to_dataframe()


def compare_evaluations(
    a: str | Path,
    b: str | Path,
    *,
    metric: str = MAIN_METRIC,
    metrics: Sequence[str] = (),
    label_matching: str | None = None,
    resamples: int = DRAWS,
    seed: int = 0,
    reward: str | None = None,
    log: str | Path | None = None,
) -> Comparison:
    """Compare two evaluations on the images that both have.

    Args:
        a: folder of an evaluation, or its images.jsonl.
        b: the evaluation that is compared with it.
        metric: what the verdict is about.
        metrics: those that are shown with `metric`; without any the core, and the rest on request.
        label_matching: as for :func:`grounding_rewards.metrics.comparison.compare_runs`; None for that of the
            evaluations.
        resamples: draws of the permutation test.
        seed: of all draws.
        reward: by which images are chosen; None for that of B.
        log: of the training of B; None for log.jsonl next to its checkpoint, if there is one.

    Raises:
        ValueError: a run cannot be read, the runs cannot be compared, or one lacks a metric.
    """
    paths = [Path(a), Path(b)]
    images = [load_predictions(path) for path in paths]
    evaluations = [read_evaluation(path) for path in paths]
    reward = reward or evaluations[1].reward
    matching = label_matching or _common_label_matching(evaluations)
    difference = compare_runs(
        *images,
        label_matching=matching,
        main=metric,
        core=metrics or (*CORE_METRICS, f"reward_{reward}"),
        resamples=resamples,
        seed=seed,
    )
    for key in metrics:
        check_metric("--metrics", key, difference.metrics)
    facts = [evaluation.facts for evaluation in evaluations]
    return Comparison(
        difference=difference,
        paths=paths,
        names=run_names(*paths),
        metrics=list(dict.fromkeys((*metrics, metric))) if metrics else list(difference.metrics),
        images=images,
        run_facts=facts,
        reward=reward,
        log=_training_log(log, facts[1]),
    )


def _common_label_matching(evaluations: Sequence[StoredEvaluation]) -> str:
    """The rule by which both evaluations compared labels; one that names none is taken to be like the other."""
    rules = dict.fromkeys(run.label_matching for run in evaluations if run.label_matching is not None)
    if len(rules) > 1:
        raise ValueError(
            f"Expected runs that were evaluated by one --label-matching, got {' and '.join(rules)}. Their metrics "
            "say different things: give --label-matching, by which both are measured here, or evaluate one again."
        )
    return next(iter(rules), "ignore")


def _training_log(log: str | Path | None, facts: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The entries of the file that was named, else of the log next to the evaluated model, else none."""
    if log is not None:
        return read_entries(Path(log))
    if "model" not in facts:
        return []
    path = Path(str(facts["model"])).parent / LOG
    return read_entries(path) if path.is_file() else []


def _trained(facts: Mapping[str, Any]) -> str:
    """The training of the evaluated model, as in `GRPO with R4`; empty if unknown."""
    if "model" not in facts or not Path(str(facts["model"])).is_dir():
        return ""
    reward_and_parameters = trained_reward(Path(str(facts["model"])))
    return "" if reward_and_parameters is None else f"GRPO with {reward_and_parameters[0]}"


def run_names(a: Path, b: Path) -> list[str]:
    """A name for each run: the last part of its path that tells it from the other, or a letter where none does.

    Example:
        >>> run_names(Path("runs/before"), Path("runs/after"))
        ['before', 'after']
        >>> run_names(Path("R1/evaluation"), Path("R2/evaluation"))
        ['R1', 'R2']
        >>> run_names(Path("runs/R1"), Path("runs/R1"))
        ['A', 'B']
    """
    folders = [(path.parent if path.is_file() else path).resolve() for path in (a, b)]
    if folders[0] == folders[1]:
        return ["A", "B"]
    while folders[0].name == folders[1].name:
        folders = [folder.parent for folder in folders]
    return [folder.name or str(folder) for folder in folders]


def facts_that_differ(a: Mapping[str, Any], b: Mapping[str, Any]) -> dict[str, tuple[str, str]]:
    """The facts of their evaluations in which two runs differ; none where either has no facts.

    Example:
        >>> facts_that_differ({"reward": "R4", "images": 9}, {"reward": "R5", "images": 9})
        {'reward': ('R4', 'R5')}
    """
    if not a or not b:
        return {}
    names = dict.fromkeys([*a, *b])
    return {name: _different_texts(a.get(name), b.get(name)) for name in names if a.get(name) != b.get(name)}


def _different_texts(*facts: Any) -> tuple[str, str]:
    """Two facts as texts; of long ones the part from the first difference, of :data:`_LONGEST_FACT` characters."""
    a, b = (fact if isinstance(fact, str) else json.dumps(fact, ensure_ascii=False) for fact in facts)
    # A text and a mapping may be written alike.
    if a == b or max(len(a), len(b)) <= _LONGEST_FACT:
        return a, b
    first_difference = next(k for k, (letter, other_letter) in enumerate(zip_longest(a, b)) if letter != other_letter)
    start = a.rfind(" ", 0, first_difference) + 1
    return f"…{a[start : start + _LONGEST_FACT]}", f"…{b[start : start + _LONGEST_FACT]}"


def _line(heading: str, change: Change) -> list[str | Cell]:
    """The cells of a metric: both values and their change, with the units and the test beneath it."""
    notes = []
    if any(change.units):
        notes.append(" / ".join(map(str, change.units)))
    if not math.isnan(change.p):
        notes.append(f"p {p_cell(change.p)}, Holm {p_cell(change.holm)}")
    difference = Cell(format_estimate(change.difference, signed=True), "\n".join(notes), kind_of(change.direction))
    return [heading, estimate_cell(change.a), estimate_cell(change.b), difference]


def choose_first(images: Sequence[SharedImage], reward: str) -> list[html.Choice]:
    """Choose the images at the head of the page: no choice of a person, and no flattery.

    Of each of the four most frequent findings the image with the median gain, likewise a normal image, and the image
    that lost most, if any did. No image comes twice.

    Args:
        images: all that both runs have.
        reward: name of the reward whose change ranks them.

    Returns:
        A choice of one image each, in this order; places are indices into `images`.

    Example:
        >>> image = {"width": 9, "height": 9, "gt": [[0, 0, 5, 5]], "gt_labels": ["mass"]}
        >>> pairs = [(0.5, 0.7), (0.5, 0.6), (0.5, 0.8), (0.5, 0.3)]
        >>> shared = [tuple(Prediction("", **image, rewards={"R4": value}) for value in pair) for pair in pairs]
        >>> [(choice.title, list(choice.places)) for choice in choose_first(shared, "R4")]
        [('mass, median change', [0]), ('worst loss', [3])]
    """
    ranked = sorted(range(len(images)), key=lambda k: _gain(images[k], reward))
    labels = Counter(label for shared in images for label in set(shared[0].gt_labels))
    # The worst loss is chosen before it could be taken for a median, and shown last.
    choices = [html.Choice(_WORST_LOSS, "", [k for k in ranked if _gain(images[k], reward) < 0], "first")]
    for label, _ in labels.most_common(_FINDINGS_FIRST):
        places = [k for k in ranked if label in images[k][0].gt_labels]
        choices.append(html.Choice(f"{label}, median change", "", places, "middle"))
    choices.append(html.Choice("normal image", "", [k for k in ranked if images[k][0].is_normal], "middle"))
    return sorted(html.choose_images(choices, 1), key=lambda choice: choice.title == _WORST_LOSS)


def choose_shared(
    images: Sequence[SharedImage], reward: str, names: Sequence[str], *, count: int = IMAGES_PER_SECTION
) -> list[html.Choice]:
    """Choose further images: largest gains, largest losses, and normal images.

    Args:
        images: all that both runs have.
        reward: name of the reward whose change ranks them.
        names: of the runs.
        count: images per section at most.

    Returns:
        The choices that have an image; places are indices into `images`.

    Example:
        >>> image = {"width": 9, "height": 9, "gt": [[0, 0, 5, 5]], "gt_labels": ["mass"]}
        >>> shared = tuple(Prediction("a", **image, rewards={"R4": value}) for value in (0.5, 0.7))
        >>> [choice.title for choice in choose_shared([shared], "R4", ["A", "B"])]
        ['Largest gains']
    """
    gains = [_gain(shared, reward) for shared in images]
    # Of two equal gains the one that ends higher counts as larger.
    ranked = sorted(range(len(images)), key=lambda k: (gains[k], images[k][1].rewards[reward]))
    findings = [k for k in ranked if not images[k][0].is_normal]
    normal = [k for k in reversed(ranked) if images[k][0].is_normal]
    up = [k for k in reversed(findings) if gains[k] > 0]
    down = [k for k in findings if gains[k] < 0]
    tally = f"{len(up)} of {len(findings)} images with findings have a higher {reward} in {names[1]}, "
    tally += f"{len(down)} a lower one, {len(findings) - len(up) - len(down)} the same."
    counts = [sum(not len(images[k][run].pred) for k in normal) for run in range(len(names))]
    without_box = [f"{count} of {len(normal)} in {name}" for count, name in zip(counts, names, strict=True)]
    note = f"Nothing is to be found here; any box is invented. Without a box: {', '.join(without_box)}."
    choices = [
        html.Choice("Largest gains", tally, up, "first"),
        html.Choice("Largest losses", tally, down, "first"),
        html.Choice("Normal images", note, normal),
    ]
    return html.choose_images(choices, count)


def _gain(shared: SharedImage, reward: str) -> float:
    """By how much the reward of an image is higher in run B."""
    before, after = shared
    # Equal rewards may differ in the last digit.
    return round(after.rewards[reward] - before.rewards[reward], 9)


def render_diff_page(comparison: Comparison, *, load_image: LoadImage) -> str:
    """Render the page of a comparison.

    Args:
        comparison: of the runs.
        load_image: opens an image, None where there is none; called only for those that are shown.

    Returns:
        An HTML document that refers to nothing outside itself.

    Raises:
        ValueError: an image lacks the reward by whose change images are chosen.
    """
    difference, names, reward = comparison.difference, comparison.names, comparison.reward
    images = _shared_images(comparison)
    first_cards = []
    for choice in choose_first(images, reward):
        card = _card(comparison, images[choice.places[0]], load_image)
        reference = images[choice.places[0]][0]
        # The reference with the answers, without the details of their boxes.
        boxes = confusion.drawn_boxes(reference.gt, "reference", reference.gt_labels)
        panels = [html.Panel(boxes, "reference", card.title)]
        panels += [panel._replace(lines=(), text=None) for panel in card.panels]
        first_cards.append(card._replace(title=choice.title, panels=panels))
    sections = []
    for choice in choose_shared(images, reward, names):
        cards = [_card(comparison, images[place], load_image) for place in choice.places]
        sections.append(html.Section(choice.title, [html.Cards(cards)], choice.note))
    facts, rewards = comparison.run_facts[1], reward_plot(comparison.log)
    split = f" ({facts['split']})" if facts.get("split") else ""
    dataset = f" of {Path(str(facts['dataset'])).name}{split}" if "dataset" in facts else ""
    return html.Page(
        title=comparison.title,
        subtitle=f"{difference.images} images{dataset}. {names[1]} compared with {names[0]}. "
        f"Above each image: the change of its {reward}.",
        opening=[html.Legend(), html.Cards(first_cards)] if first_cards else [],
        verdict=difference.verdict,
        sections=[
            html.Section("Training", [rewards] if rewards else []),
            html.Section("Images", [html.Legend(difference.label_matching), *sections] if sections else []),
            html.Section("Metrics", _tables(comparison), f"{CAPTION} {comparison.tests_caption}"),
            html.Section("How it was compared", [comparison.facts]),
        ],
        footer=html.GUARD,
    ).render()


def _card(comparison: Comparison, shared: SharedImage, load_image: LoadImage) -> html.Card:
    """The card of one image, with a panel for the answer of each run."""
    panels = []
    for name, image in zip(comparison.names, shared, strict=True):
        outcomes = confusion.box_outcomes(image, comparison.difference.label_matching)
        predictions = zip(image.pred_labels, outcomes.pred, outcomes.pred_ious.tolist(), strict=True)
        lines = [
            (f"{label or 'box'}: {outcome}", f"IoU {confusion.format_iou(iou)}") for label, outcome, iou in predictions
        ]
        heading = f"{name} {image.rewards[comparison.reward]:.2f}"
        boxes, summary = confusion.drawn_answer(image, outcomes), confusion.image_summary(image, outcomes)
        panels.append(html.Panel(boxes, heading, summary, lines[: confusion.MOST_BOXES], image.text[:_MOST_TEXT]))
    pixels, gain, reference = load_image(shared[-1]), _gain(shared, comparison.reward), shared[0]
    return html.Card(
        title=", ".join(reference.gt_labels) or "normal",
        id=reference.id,
        uri=html.jpeg_uri(pixels, LONGEST_SIDE) if pixels else "",
        size=(reference.width, reference.height),
        panels=panels,
        sides=any(map(confusion.has_sides, shared)),
        value=Cell(format_value(gain, signed=True), kind=kind_of(gain)),
    )


def _tables(comparison: Comparison) -> list[Any]:
    """The blocks of metrics: the core as a table, then all, those by label and definitions, each folded."""
    blocks: list[Any] = [comparison.table(comparison.core)]
    if not set(comparison.metrics) <= set(comparison.difference.core):
        blocks.append(html.Section("All metrics", [comparison.table(comparison.metrics)], kind="fold"))
    if comparison.difference.labels:
        table = comparison.label_table
        blocks.append(html.Section(table.title, [table._replace(title="")], kind="fold"))
    metrics = [comparison.difference.metrics[key].metric for key in comparison.metrics]
    definitions = {metric.heading: metric.definition for metric in metrics if metric.definition}
    if definitions:
        blocks.append(html.Section("What each metric is", [definitions], kind="fold"))
    return blocks


def _shared_images(comparison: Comparison) -> list[SharedImage]:
    """The images that both runs have, each as both answered it."""
    images, images_b = comparison.images
    by_id = {image.id: image for image in images_b}
    shared = [(image, by_id[image.id]) for image in images if image.id in by_id]
    common_rewards = set.intersection(*(set(image.rewards) for pair in shared for image in pair))
    if comparison.reward not in common_rewards:
        raise ValueError(
            f"Expected a reward that all images of both runs have for --reward, got {comparison.reward!r}. "
            f"They have: {', '.join(sorted(common_rewards)) or 'none'}."
        )
    return shared
