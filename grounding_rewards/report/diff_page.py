"""The page of a comparison: metrics of two runs side by side, training curves, and images with the answers of both."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from grounding_rewards.images.drawn_boxes import draw_answer
from grounding_rewards.metrics.answered_image import AnsweredImage
from grounding_rewards.metrics.estimates import format_interval, format_value
from grounding_rewards.metrics.outcomes import MOST_BOXES, box_outcomes, format_iou
from grounding_rewards.report.comparison_tables import Comparison, caption, comparison_tables, kind_of
from grounding_rewards.report.page import (
    GUARD,
    Card,
    Cards,
    Choice,
    Legend,
    Page,
    Section,
    Tile,
    answer_card,
    answer_panel,
    choose_images,
    is_measured,
)
from grounding_rewards.report.plots import Plot
from grounding_rewards.report.render import jpeg_uri
from grounding_rewards.report.tables import Cell

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from PIL.Image import Image

    LoadImage = Callable[[AnsweredImage], Image | None]

#: Longest side in pixels of an image on the page; with the number of images it bounds the size of the file.
LONGEST_SIDE = 448
IMAGES_PER_SECTION = 6
_MOST_TEXT = 4_000

# The metrics at the top, after the one that the verdict is about.
_TILES = ("sampled_reward", "mean_iou", "hallucination_rate", "sampled_unparseable_share")
_MOST_TILES = 4


class ImagePair(NamedTuple):
    """The same image as A and as B answered it."""

    a: AnsweredImage
    b: AnsweredImage


def choose_pairs(pairs: Sequence[ImagePair], reward: str, *, count: int = IMAGES_PER_SECTION) -> list[Choice]:
    """Choose the images to show: largest losses, largest gains, the middle, unchanged images, normal images.

    Losses come first, and the middle of the ranking shows what to expect; gains alone would flatter any model. No image
    is shown twice.

    Args:
        pairs: all images that both runs have.
        reward: name of the reward whose change ranks them.
        count: images per section at most.

    Returns:
        The choices that have an image; places are indices into `pairs`.

    Example:
        >>> image = {"width": 9, "height": 9, "gt": [[0, 0, 5, 5]], "gt_labels": ["mass"]}
        >>> pair = ImagePair(*(AnsweredImage("a", **image, rewards={"R4": value}) for value in (0.5, 0.7)))
        >>> [choice.title for choice in choose_pairs([pair], "R4")]
        ['Largest gains']
    """
    gains = [_gain(pair, reward) for pair in pairs]
    ranked = sorted(range(len(pairs)), key=lambda k: (gains[k], pairs[k].b.rewards[reward]))
    findings = [k for k in ranked if not pairs[k].a.is_normal]
    normal = [k for k in ranked if pairs[k].a.is_normal][::-1]
    down, up = [k for k in findings if gains[k] < 0], [k for k in findings[::-1] if gains[k] > 0]
    same = [k for k in findings if gains[k] == 0]
    tally = f"{len(up)} of {len(findings)} images with findings have a higher {reward} in B, {len(down)} a lower one."
    clean_a, clean_b = (sum(not len(pairs[k][side].pred) for k in normal) for side in (0, 1))
    wanted = [
        Choice("Largest losses", tally, down, "first"),
        Choice("Largest gains", tally, up, "first"),
        Choice("In the middle", "From the middle of the ranking by change: what to expect.", findings, "middle"),
        Choice("Unchanged", f"{len(same)} of {len(findings)} images with findings have the same {reward}.", same),
        Choice(
            "Normal images",
            "Nothing is to be found here; any box is invented. "
            f"Without a box: {clean_a} of {len(normal)} in A, {clean_b} of {len(normal)} in B.",
            normal,
        ),
    ]
    return choose_images(wanted, count)


def _gain(pair: ImagePair, reward: str) -> float:
    return pair.b.rewards[reward] - pair.a.rewards[reward]


def render_diff_page(
    comparison: Comparison,
    pairs: Sequence[ImagePair],
    *,
    subtitle: str,
    reward: str,
    load_image: LoadImage,
    label_matching: str = "ignore",
    training: Plot | None = None,
) -> str:
    """Write the whole page.

    Args:
        comparison: how the runs differ.
        pairs: the images that both runs have.
        subtitle: on which images.
        reward: name of the reward by whose change images are chosen, a key of their ``rewards``.
        load_image: opens an image, None where there is none; called only for those that are shown.
        label_matching: by which boxes are called right, as in the metrics.
        training: from :func:`grounding_rewards.report.training_curves.training_plot`.

    Returns:
        An HTML document that refers to nothing outside itself.
    """
    a, b = comparison.names
    found = comparison.found.metrics
    shown = [found[key] for key in dict.fromkeys((comparison.found.main, *_TILES)) if key in found]
    tiles = [
        Tile(
            one.metric.heading,
            f"{format_value(one.a.value)} → {format_value(one.b.value)}",
            f"{format_value(one.difference.value, signed=True)} {format_interval(one.difference, signed=True)}",
            kind=kind_of(one.shown_by_interval()),
        )
        for one in shown
        if is_measured(one.a) or is_measured(one.b)
    ]
    table, *parts = comparison_tables(comparison)
    metrics = [found[key].metric for key in comparison.metrics]
    definitions = {one.heading: one.definition for one in metrics if one.definition}
    folded = {"What each metric is": definitions, **{one.title: one._replace(title="") for one in parts}}

    def card(pair: ImagePair) -> Card:
        image, gain = load_image(pair.b), _gain(pair, reward)
        panels = []
        for name, answered in zip((a, b), pair, strict=True):
            outcomes = box_outcomes(answered, label_matching)
            boxes = zip(answered.pred_labels, outcomes.pred, outcomes.pred_ious.tolist(), strict=True)
            lines = [(f"{label or 'box'}: {outcome}", f"IoU {format_iou(iou)}") for label, outcome, iou in boxes]
            named = f"{name} {answered.rewards[reward]:.2f}"
            text = answered.text[:_MOST_TEXT]
            panels.append(answer_panel(answered, outcomes, named, lines=lines[:MOST_BOXES], text=text))
        uri = jpeg_uri(image, LONGEST_SIDE) if image else ""
        return answer_card(pair, panels, uri, Cell(format_value(gain, signed=True), kind=kind_of(gain)))

    cards = [
        Section(one.title, [Cards([card(pairs[k]) for k in one.places])], one.note)
        for one in choose_pairs(pairs, reward)
    ]
    return Page(
        title=f"{b} compared with {a}",
        subtitle=subtitle,
        verdict=comparison.verdict,
        tiles=tiles[:_MOST_TILES],
        sections=[
            Section(
                "Metrics",
                [table, *(Section(title, [block], kind="fold") for title, block in folded.items())],
                caption(comparison),
            ),
            Section("Training", [training] if training else []),
            Section("Images", [Legend(label_matching), *cards] if cards else []),
            Section("How it was compared", [comparison.facts]),
        ],
        footer=GUARD,
    ).render()


def pairs_plot(
    pairs: Sequence[ImagePair],
    names: tuple[str, str],
    reward: str,
    load_image: LoadImage,
    *,
    label_matching: str = "ignore",
    count: int = 5,
) -> Plot:
    """The first images in two rows, A above B, for a README or a slide.

    The first images, not the best ones: nobody chose them.

    Args:
        pairs: images that both runs have, in their own order.
        names: of A and of B.
        reward: name of the reward that is written above each image.
        load_image: opens an image, None where there is none.
        label_matching: by which boxes are called right.
        count: number of images.
    """
    shown = pairs[:count]

    def draw(figure: Figure) -> None:
        axes = figure.subplots(2, len(shown), squeeze=False)
        for column, pair in enumerate(shown):
            image = load_image(pair.b)
            for axis, answered, name in zip(axes[:, column], pair, names, strict=True):
                draw_answer(axis, answered, image, box_outcomes(answered, label_matching))
                axis.set_aspect("equal")
                axis.set_title(f"{name}: reward {answered.rewards[reward]:.2f}")

    return Plot("images", "Images", "The first images.", draw, (2.1 * len(shown), 5.0))
