"""The comparison of two runs as tables in the terminal, as JSON and as a page.

The page has a few images with the boxes of both runs first, then what changed, the reward in training, and the metrics
side by side.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grounding_rewards.common.formatting import NO_VALUE, format_value
from grounding_rewards.logs.run_log import LOG, first_and_last, read_entries
from grounding_rewards.metrics import outcomes
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
from grounding_rewards.report.plots import reward_plot
from grounding_rewards.report.tables import Cell, Table, estimate_cell, group_metrics, kind_of

if TYPE_CHECKING:
    from PIL.Image import Image
    from rich.console import Console

    LoadImage = Callable[[Prediction], Image | None]

#: The rule for better and worse, and the signs of the tables.
CAPTION = (
    "Better or worse: the 95 % interval of the change excludes 0, and Holm's p over the metrics shown is below "
    f"{LEVEL:g}; else no change is shown. ↓: lower is better."
)
#: Longest side in pixels of an image on the page; with the number of images it bounds the size of the file.
LONGEST_SIDE = 448

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
        log: the entries of the training of B; empty where no training is known.
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
    def title(self) -> str:
        """The runs and the change of the metric of the verdict, as in `after against before: mean IoU 0.63 → 0.69`."""
        change = self.difference.metrics[self.difference.main]
        values = [NO_VALUE if math.isnan(value) else f"{value:.2f}" for value in (change.a.value, change.b.value)]
        return f"{self.names[1]} against {self.names[0]}: {change.metric.heading} {' → '.join(values)}"

    @property
    def core(self) -> list[str]:
        """Keys of the metrics that are shown first, without those that were measured in neither run."""
        keys = []
        for key in self.difference.core:
            change = self.difference.metrics[key]
            is_measured = not (math.isnan(change.a.value) and math.isnan(change.b.value))
            # `metrics` lacks a core metric where the user chose others.
            if key in self.metrics and is_measured:
                keys.append(key)
        return keys

    @property
    def facts(self) -> list[str]:
        """What a reader must know of the comparison, a line each; at the end how the runs were made differently."""
        difference, (a, b) = self.difference, self.names
        patients = f" of {difference.n} patients" if difference.units == "patients" else ""
        # A run that is named by its whole path needs no line that says where it is.
        lines = [f"{name}: {path}" for name, path in zip(self.names, self.paths, strict=True) if name != str(path)]
        unshared = ""
        if difference.only_a or difference.only_b:
            unshared = f"; {difference.only_a} only in {a} and {difference.only_b} only in {b} play no part"
        lines.append(f"{difference.images} images{patients} in both{unshared}")
        lines.append(f"{difference.resamples} draws of {difference.units}, seed {difference.seed}")
        lines.append(f"labels of boxes: {difference.label_matching} (--label-matching)")
        facts_a, facts_b = self.run_facts
        # Where nothing is known of a run, every fact of the other would look like a difference.
        if facts_a and facts_b:
            for name in dict.fromkeys([*facts_a, *facts_b]):
                if facts_a.get(name) != facts_b.get(name):
                    lines.append(f"{name}: {facts_a.get(name)} in {a}, {facts_b.get(name)} in {b}")
        return lines

    def to_dict(self) -> dict[str, Any]:
        """The comparison as plain values."""
        a, b = map(str, self.paths)
        return {"a": a, "b": b, **self.difference.to_dict()}

    def table(self, keys: Sequence[str]) -> Table:
        """The table of the changes of these metrics, a row for each, in groups."""
        rows: list[list[str | Cell]] = []
        for group, keys_of_group in group_metrics(keys).items():
            # A row of one cell is the heading of those beneath it.
            rows.append([group])
            for key in keys_of_group:
                change = self.difference.metrics[key]
                arrow = " ↓" if change.metric.lower_is_better else ""
                rows.append(_change_row(change.metric.heading + arrow, change))
        return Table(self._header, rows)

    @property
    def label_table(self) -> Table:
        """The changes of each label's metrics, a row each; no rows where no reference box has a label."""
        rows: list[list[str | Cell]] = []
        for label in self.difference.labels:
            for change in label.changes.values():
                rows.append(_change_row(f"{label.name} ({label.boxes}), {change.metric.heading}", change))
        return Table(self._header, rows, "Reference boxes by label")

    @property
    def _header(self) -> list[str | Cell]:
        """The header of every table of changes."""
        return ["metric", *self.names, Cell("change", "better / worse / same")]

    @property
    def tests_caption(self) -> str:
        """What the counts of units, p and Holm's p in the tables of changes mean, in sentences."""
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
                # A row has several lines anyway, so its name in column 0 may be broken; numbers never are.
                console.print(table.rich(unbroken=range(1, len(table.header))))
            legend = self.tests_caption
        else:
            # Without the small print: intervals, counts and p.
            console.print(self.table(self.core).rich(small=False))
            legend = "--all: every metric, labels and tests."
        console.print(Text(f"{CAPTION} {legend}", style="dim"))
        console.print(Text(self.difference.verdict, style="bold"))
        # Such as `0.433 → 0.565, a step ± 0.050, first and last 10 of 200`; empty where no training is known.
        training_reward = first_and_last(self.log, "reward")
        if training_reward:
            console.print(Text(f"Reward in training {training_reward} steps."))


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
    facts_a, facts_b = (evaluation.facts for evaluation in evaluations)
    # The model of B is a checkpoint in the folder of its training, where the log lies; a model of the hub has none.
    training_log = Path(str(facts_b.get("model"))).parent / LOG
    return Comparison(
        difference=difference,
        paths=paths,
        names=run_names(*paths),
        metrics=list(dict.fromkeys((*metrics, metric))) if metrics else list(difference.metrics),
        images=images,
        run_facts=[facts_a, facts_b],
        reward=reward,
        log=read_entries(training_log) if "model" in facts_b and training_log.is_file() else (),
    )


def _common_label_matching(evaluations: Sequence[StoredEvaluation]) -> str:
    """The rule by which both evaluations compared labels; refuse two rules.

    One that names no rule is taken to be like the other; if neither does, labels are ignored.
    """
    rules = dict.fromkeys(run.facts["label matching"] for run in evaluations if "label matching" in run.facts)
    if len(rules) > 1:
        raise ValueError(
            f"Expected runs that were evaluated by one --label-matching, got {' and '.join(rules)}. Their metrics "
            "say different things: give --label-matching, by which both are measured here, or evaluate one again."
        )
    return next(iter(rules), "ignore")


def run_names(a: Path, b: Path) -> list[str]:
    """The names of both runs: the last part of each path that differs from the other's; A and B for one folder.

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


def _change_row(heading: str, change: Change) -> list[str | Cell]:
    """The row of a metric: its heading, both values, and their change with counts and p beneath it, where known."""
    notes = []
    if any(change.units):
        # On how many images or patients B is better, worse and the same.
        notes.append(" / ".join(map(str, change.units)))
    if not math.isnan(change.p):
        notes.append(f"p {p_cell(change.p)}, Holm {p_cell(change.holm)}")
    difference = Cell(format_estimate(change.difference, signed=True), "\n".join(notes), kind_of(change.direction))
    return [heading, estimate_cell(change.a), estimate_cell(change.b), difference]


def choose_first(images: Sequence[SharedImage], reward: str) -> list[html.Choice]:
    """Choose the images that the page shows first, by a rule, so that nobody can pick flattering ones.

    For each of the four most frequent findings the image with the median gain, likewise one normal image, and the image
    that lost most, if any did. No image comes twice.

    Args:
        images: all that both runs have.
        reward: name of the reward whose change ranks them.

    Returns:
        Choices of one image each, in this order; their `places` are indices into `images`.

    Example:
        >>> image = {"width": 9, "height": 9, "gt": [[0, 0, 5, 5]], "gt_labels": ["mass"]}
        >>> pairs = [(0.5, 0.7), (0.5, 0.6), (0.5, 0.8), (0.5, 0.3)]
        >>> shared = [tuple(Prediction("", **image, rewards={"R4": value}) for value in pair) for pair in pairs]
        >>> [(choice.title, list(choice.places)) for choice in choose_first(shared, "R4")]
        [('mass, median change', [0]), ('worst loss', [3])]
    """
    worst_first = sorted(range(len(images)), key=lambda place: _gain(images[place], reward))
    # Run A stands for both: they have the same reference boxes.
    references = [image_a for image_a, _ in images]
    image_counts = Counter(label for reference in references for label in set(reference.gt_labels))
    losses = [place for place in worst_first if _gain(images[place], reward) < 0]
    normal = [place for place in worst_first if references[place].is_normal]
    # The worst loss chooses before another choice could take its image, and is shown last.
    choices = [html.Choice(_WORST_LOSS, "", losses, "first")]
    for label, _ in image_counts.most_common(_FINDINGS_FIRST):
        places = [place for place in worst_first if label in references[place].gt_labels]
        choices.append(html.Choice(f"{label}, median change", "", places, "middle"))
    choices.append(html.Choice("normal image", "", normal, "middle"))
    return sorted(html.choose_images(choices, count=1), key=lambda choice: choice.title == _WORST_LOSS)


def _gain(shared: SharedImage, reward: str) -> float:
    """By how much the reward of an image is higher in run B than in run A."""
    image_a, image_b = shared
    # Rounding errors of equal rewards must not look like a loss.
    return round(image_b.rewards[reward] - image_a.rewards[reward], 9)


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
    difference, (name_a, name_b), reward = comparison.difference, comparison.names, comparison.reward
    images = _shared_images(comparison)
    choices = choose_first(images, reward)
    # Every choice has exactly one place.
    cards = [_card(comparison, choice.title, images[choice.places[0]], load_image) for choice in choices]
    training_plot = reward_plot(comparison.log)
    # Both runs answered the same images; the facts of B name their dataset.
    _, facts = comparison.run_facts
    split = f" ({facts['split']})" if facts.get("split") else ""
    dataset = f" of {Path(str(facts['dataset'])).name}{split}" if "dataset" in facts else ""
    return html.Page(
        title=comparison.title,
        subtitle=f"{difference.images} images{dataset}. {name_b} compared with {name_a}. "
        f"Above each image: the change of its {reward}.",
        opening=[html.Legend(difference.label_matching), html.Cards(cards)] if cards else [],
        verdict=difference.verdict,
        sections=[
            html.Section("Training", [training_plot] if training_plot else []),
            html.Section("Metrics", _tables(comparison), f"{CAPTION} {comparison.tests_caption}"),
            html.Section("How it was compared", [comparison.facts]),
        ],
        footer=html.GUARD,
    ).render()


def _card(comparison: Comparison, title: str, shared: SharedImage, load_image: LoadImage) -> html.Card:
    """The card of one image, with a panel for the reference and for the answer of each run."""
    # Id, size and reference boxes are the same in both runs; `load_image` opens the dataset of B.
    image_a, image_b = shared
    boxes = outcomes.drawn_boxes(image_a.gt, "reference", image_a.gt_labels)
    panels = [html.Panel(boxes, "reference", ", ".join(image_a.gt_labels) or "normal")]
    for name, image in zip(comparison.names, shared, strict=True):
        box_outcomes = outcomes.box_outcomes(image, comparison.difference.label_matching)
        heading = f"{name} {image.rewards[comparison.reward]:.2f}"
        boxes = outcomes.drawn_answer(image, box_outcomes)
        panels.append(html.Panel(boxes, heading, outcomes.image_summary(image, box_outcomes)))
    pixels, gain = load_image(image_b), _gain(shared, comparison.reward)
    return html.Card(
        title=title,
        id=image_a.id,
        uri=html.jpeg_uri(pixels, LONGEST_SIDE) if pixels else "",
        size=(image_a.width, image_a.height),
        panels=panels,
        value=Cell(format_value(gain, signed=True), kind=kind_of(gain)),
    )


def _tables(comparison: Comparison) -> list[Any]:
    """The blocks of metrics: the core as a table, then all and those by label, each folded."""
    blocks: list[Any] = [comparison.table(comparison.core)]
    if set(comparison.metrics) - set(comparison.difference.core):
        blocks.append(html.Section("All metrics", [comparison.table(comparison.metrics)], kind="fold"))
    if comparison.difference.labels:
        table = comparison.label_table
        # The title stands on the folded section, not above the table inside it again.
        blocks.append(html.Section(table.title, [table._replace(title="")], kind="fold"))
    return blocks


def _shared_images(comparison: Comparison) -> list[SharedImage]:
    """The images that both runs have, each as both answered it; refuse a comparison whose reward one of them lacks."""
    images_a, images_b = comparison.images
    b_by_id = {image.id: image for image in images_b}
    shared = [(image, b_by_id[image.id]) for image in images_a if image.id in b_by_id]
    common_rewards = set.intersection(*(set(image.rewards) for pair in shared for image in pair))
    if comparison.reward not in common_rewards:
        raise ValueError(
            f"Expected a reward that all images of both runs have for --reward, got {comparison.reward!r}. "
            f"They have: {', '.join(sorted(common_rewards)) or 'none'}."
        )
    return shared
