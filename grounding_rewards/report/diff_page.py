"""The page of a comparison: images with the answers of all runs, their metrics side by side, and training curves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grounding_rewards.metrics.answered_image import AnsweredImage
from grounding_rewards.metrics.estimates import format_interval, format_value
from grounding_rewards.metrics.outcomes import (
    MOST_BOXES,
    box_outcomes,
    drawn_answer,
    format_iou,
    has_sides,
    image_summary,
)
from grounding_rewards.report.comparison_tables import Comparison, kind_of
from grounding_rewards.report.page import (
    GUARD,
    Card,
    Cards,
    Choice,
    Legend,
    Page,
    Panel,
    Section,
    Tile,
    choose_images,
    is_measured,
    jpeg_uri,
)
from grounding_rewards.report.plots import Plot
from grounding_rewards.report.tables import Cell

if TYPE_CHECKING:
    from PIL.Image import Image

    LoadImage = Callable[[AnsweredImage], Image | None]

#: Longest side in pixels of an image on the page; with the number of images it bounds the size of the file.
LONGEST_SIDE = 448
IMAGES_PER_SECTION = 6
_MOST_TEXT = 4_000

# The metrics at the top, after the one that the verdict is about.
_TILES = ("sampled_reward", "mean_iou", "hallucination_rate", "sampled_unparseable_share")
_MOST_TILES = 4


#: The same image as each run answered it, A first.
SharedImage = tuple[AnsweredImage, ...]


def choose_shared(
    images: Sequence[SharedImage], reward: str, names: Sequence[str], *, count: int = IMAGES_PER_SECTION
) -> list[Choice]:
    """Choose the images to show: largest losses, largest gains, the middle, unchanged images, normal images.

    Losses come first, and the middle of the ranking shows what to expect; gains alone would flatter any model. No image
    is shown twice.

    Args:
        images: all that every run has.
        reward: name of the reward whose change ranks them; of several runs the mean of their changes from A.
        names: of the runs.
        count: images per section at most.

    Returns:
        The choices that have an image; places are indices into `images`.

    Example:
        >>> image = {"width": 9, "height": 9, "gt": [[0, 0, 5, 5]], "gt_labels": ["mass"]}
        >>> shared = tuple(AnsweredImage("a", **image, rewards={"R4": value}) for value in (0.5, 0.7))
        >>> [choice.title for choice in choose_shared([shared], "R4", ["A", "B"])]
        ['Largest gains']
    """
    gains = [_gain(shared, reward) for shared in images]
    ranked = sorted(range(len(images)), key=lambda k: (gains[k], images[k][-1].rewards[reward]))
    findings = [k for k in ranked if not images[k][0].is_normal]
    normal = [k for k in ranked if images[k][0].is_normal][::-1]
    down, up = [k for k in findings if gains[k] < 0], [k for k in findings[::-1] if gains[k] > 0]
    same = [k for k in findings if gains[k] == 0]
    others = names[1] if len(names) == 2 else "the mean of the others"
    tally = f"{len(up)} of {len(findings)} images with findings have a higher {reward} in {others}, "
    tally += f"{len(down)} a lower one."
    clean = {name: sum(not len(images[k][run].pred) for k in normal) for run, name in enumerate(names)}
    without = ", ".join(f"{n} of {len(normal)} in {name}" for name, n in clean.items())
    wanted = [
        Choice("Largest losses", tally, down, "first"),
        Choice("Largest gains", tally, up, "first"),
        Choice("In the middle", "From the middle of the ranking by change: what to expect.", findings, "middle"),
        Choice("Unchanged", f"{len(same)} of {len(findings)} images with findings have the same {reward}.", same),
        Choice("Normal images", f"Nothing is to be found here; any box is invented. Without a box: {without}.", normal),
    ]
    return choose_images(wanted, count)


def _gain(shared: SharedImage, reward: str) -> float:
    first, *others = (answered.rewards[reward] for answered in shared)
    return sum(others) / len(others) - first


def render_diff_page(comparison: Comparison, *, load_image: LoadImage, training: Plot | None = None) -> str:
    """Write the whole page.

    Args:
        comparison: of the runs.
        load_image: opens an image, None where there is none; called only for those that are shown.
        training: from :func:`grounding_rewards.report.plots.training_plot`.

    Returns:
        An HTML document that refers to nothing outside itself.

    Raises:
        ValueError: an image lacks the reward by whose change images are chosen.
    """
    found, names, reward = comparison.first, comparison.names, comparison.reward
    metrics = [found.metrics[key].metric for key in comparison.metrics]
    images = _shared_images(comparison)
    folded: dict[str, list[Any]] = {}
    if not comparison.chosen:
        folded["All metrics"] = [comparison.table(comparison.metrics)]
        folded |= {one.title: [one._replace(title="")] for one in comparison.group_tables()}
    if definitions := {one.heading: one.definition for one in metrics if one.definition}:
        folded["What each metric is"] = [definitions]

    def card(shared: SharedImage) -> Card:
        image, gain = load_image(shared[-1]), _gain(shared, reward)
        panels = []
        for name, answered in zip(names, shared, strict=True):
            outcomes = box_outcomes(answered, found.label_matching)
            boxes = zip(answered.pred_labels, outcomes.pred, outcomes.pred_ious.tolist(), strict=True)
            lines = [(f"{label or 'box'}: {outcome}", f"IoU {format_iou(iou)}") for label, outcome, iou in boxes]
            named, said = f"{name} {answered.rewards[reward]:.2f}", image_summary(answered, outcomes)
            drawn, text = drawn_answer(answered, outcomes), answered.text[:_MOST_TEXT]
            panels.append(Panel(drawn, named, said, lines[:MOST_BOXES], text))
        first = shared[0]
        return Card(
            title=", ".join(first.gt_labels) or "normal",
            id=first.id,
            uri=jpeg_uri(image, LONGEST_SIDE) if image else "",
            size=(first.width, first.height),
            panels=panels,
            sides=any(map(has_sides, shared)),
            value=Cell(format_value(gain, signed=True), kind=kind_of(gain)),
        )

    cards = [
        Section(one.title, [Cards([card(images[k]) for k in one.places])], one.note)
        for one in choose_shared(images, reward, names)
    ]
    core = [comparison.table(comparison.core)]
    facts = comparison.made[1]
    split = f" ({facts['split']})" if facts.get("split") else ""
    dataset = f" of {Path(str(facts['dataset'])).name}{split}" if "dataset" in facts else ""
    return Page(
        title=comparison.title,
        subtitle=f"{found.images} images{dataset}. {', '.join(names[1:])} compared with {names[0]}.",
        verdict=comparison.verdict,
        tiles=_tiles(comparison),
        sections=[
            Section("Images", [Legend(found.label_matching), *cards] if cards else []),
            Section(
                "Metrics",
                [*core, *(Section(title, blocks, kind="fold") for title, blocks in folded.items())],
                comparison.caption,
            ),
            Section("Training", [training] if training else []),
            Section("How it was compared", [comparison.facts]),
        ],
        footer=GUARD,
    ).render()


def _shared_images(comparison: Comparison) -> list[SharedImage]:
    """The images that all runs have, each as every run answered it."""
    by_id = [{image.id: image for image in images} for images in comparison.images]
    shared = [tuple(of[name] for of in by_id) for name in by_id[0] if all(name in of for of in by_id)]
    rewards = [set(image.rewards) for images in shared for image in images]
    if comparison.reward not in (known := set.intersection(*rewards)):
        raise ValueError(
            f"Expected a reward that all images of all runs have for --reward, got {comparison.reward!r}. "
            f"They have: {', '.join(sorted(known)) or 'none'}."
        )
    return shared


def _tiles(comparison: Comparison) -> list[Tile]:
    """Of two runs the metrics that matter most; of several the metric of the verdict for each."""
    main, first = comparison.first.main, comparison.first.metrics
    if len(comparison.differences) > 1:
        shown = list(zip(comparison.names[1:], comparison.changes(main), strict=True))
    else:
        keys = dict.fromkeys((main, *_TILES))
        shown = [(first[key].metric.heading, first[key]) for key in keys if key in first]
        shown = [(name, one) for name, one in shown if is_measured(one.a) or is_measured(one.b)][:_MOST_TILES]
    return [
        Tile(
            name,
            f"{format_value(one.a.value)} → {format_value(one.b.value)}",
            f"{format_value(one.difference.value, signed=True)} {format_interval(one.difference, signed=True)}",
            kind=kind_of(one.shown_by_interval()),
        )
        for name, one in shown
    ]
