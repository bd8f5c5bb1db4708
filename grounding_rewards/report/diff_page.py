"""The page of a comparison: first a few images with the boxes of both runs, then what changed, the reward in training,
more images, and the metrics side by side."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grounding_rewards.common.formatting import format_value
from grounding_rewards.metrics import confusion
from grounding_rewards.metrics.comparison import p_cell
from grounding_rewards.metrics.intervals import format_estimate
from grounding_rewards.metrics.prediction import Prediction
from grounding_rewards.report import page as html
from grounding_rewards.report.comparison_tables import CAPTION, Comparison
from grounding_rewards.report.plots import reward_plot
from grounding_rewards.report.tables import Cell, kind_of

if TYPE_CHECKING:
    from PIL.Image import Image

    LoadImage = Callable[[Prediction], Image | None]

#: Longest side in pixels of an image on the page; with the number of images it bounds the size of the file.
LONGEST_SIDE = 448
IMAGES_PER_SECTION = 6
_MOST_TEXT = 4_000

# The metrics at the top, after the one that the verdict is about.
_TILES = ("mean_iou", "f1_50", "image_dependence", "sampled_reward")
_MOST_TILES = 4
# Findings that have an image at the head of the page.
_FINDINGS_FIRST = 4
_WORST_LOSS = "worst loss"

#: The same image as each run answered it, A first.
SharedImage = tuple[Prediction, Prediction]


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
    without_box = []
    for run, name in enumerate(names):
        count_without = sum(not len(images[k][run].pred) for k in normal)
        without_box.append(f"{count_without} of {len(normal)} in {name}")
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
        tiles=_tiles(comparison),
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
        lines = []
        for label, outcome, iou in zip(image.pred_labels, outcomes.pred, outcomes.pred_ious.tolist(), strict=True):
            lines.append((f"{label or 'box'}: {outcome}", f"IoU {confusion.format_iou(iou)}"))
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
    """The blocks of metrics: the core as a table, then all, further tables and definitions, each folded."""
    blocks: list[Any] = [comparison.table(comparison.core)]
    if not set(comparison.metrics) <= set(comparison.difference.core):
        blocks.append(html.Section("All metrics", [comparison.table(comparison.metrics)], kind="fold"))
    for table in comparison.further_tables():
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
    common_rewards = set(shared[0][0].rewards)
    for before, after in shared:
        common_rewards &= before.rewards.keys() & after.rewards.keys()
    if comparison.reward not in common_rewards:
        raise ValueError(
            f"Expected a reward that all images of both runs have for --reward, got {comparison.reward!r}. "
            f"They have: {', '.join(sorted(common_rewards)) or 'none'}."
        )
    return shared


def _tiles(comparison: Comparison) -> list[html.Tile]:
    """The metrics that matter most, that of the verdict first."""
    keys = [key for key in dict.fromkeys((comparison.difference.main, *_TILES)) if key in comparison.core]
    tiles = []
    for key in keys[:_MOST_TILES]:
        change = comparison.difference.metrics[key]
        values = f"{format_value(change.a.value)} → {format_value(change.b.value)}"
        difference = format_estimate(change.difference, signed=True)
        p = "" if math.isnan(change.holm) else f"Holm's p {p_cell(change.holm)}"
        tiles.append(html.Tile(change.metric.heading, values, difference, p, kind_of(change.direction)))
    return tiles
