"""The page of a comparison: metrics of two runs side by side, training curves, and images with the answers of both."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from grounding_rewards.metrics.answered_image import AnsweredImage
from grounding_rewards.metrics.boxes_shown import MOST_BOXES, format_iou
from grounding_rewards.metrics.estimates import format_interval, format_value
from grounding_rewards.metrics.outcomes import box_outcomes
from grounding_rewards.report.comparison_tables import Comparison, caption, comparison_tables
from grounding_rewards.report.page import (
    GUARD,
    Card,
    Cards,
    Choice,
    Fold,
    Items,
    Legend,
    Page,
    Panel,
    Section,
    Terms,
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
    from PIL.Image import Image

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


@dataclass(frozen=True, kw_only=True)
class DiffPage:
    """What the page of a comparison shows.

    Attributes:
        comparison: how the runs differ.
        subtitle: on which images.
        pairs: the images that both runs have.
        reward: name of the reward by whose change images are chosen, a key of their ``rewards``.
        load_image: opens the image, None where there is none; called only for the images that are shown.
        label_matching: by which boxes are called right, as in the metrics.
        training: from :func:`grounding_rewards.report.training_curves.training_plot`.
    """

    comparison: Comparison
    subtitle: str
    pairs: Sequence[ImagePair]
    reward: str
    load_image: Callable[[AnsweredImage], Image | None]
    label_matching: str = "ignore"
    training: Plot | None = None


def gallery(pairs: Sequence[ImagePair], reward: str, *, count: int = IMAGES_PER_SECTION) -> list[Choice]:
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
        >>> [choice.title for choice in gallery([pair], "R4")]
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


def render_diff_page(page: DiffPage) -> str:
    """Write the whole page.

    Returns:
        An HTML document that refers to nothing outside itself.
    """
    comparison = page.comparison
    a, b = comparison.names
    found = comparison.found.metrics
    shown = [found[key] for key in dict.fromkeys((comparison.found.main, *_TILES)) if key in found]
    tiles = [
        Tile(
            one.metric.heading,
            f"{format_value(one.a.value)} → {format_value(one.b.value)}",
            f"{format_value(one.difference.value, signed=True)} {format_interval(one.difference, signed=True)}",
            kind=_kind(one.shown_by_interval()),
        )
        for one in shown
        if is_measured(one.a) or is_measured(one.b)
    ]
    table, *parts = comparison_tables(comparison)
    definitions = {
        one.metric.heading: one.metric.definition for key in comparison.metrics if (one := found[key]).metric.definition
    }
    chosen = gallery(page.pairs, page.reward)
    cards: list[Any] = [
        Section(one.title, [Cards([_card(page, page.pairs[k]) for k in one.places])], one.note) for one in chosen
    ]
    return Page(
        title=f"{b} compared with {a}",
        subtitle=page.subtitle,
        verdict=comparison.verdict,
        tiles=tiles[:_MOST_TILES],
        sections=[
            Section(
                "Metrics",
                [
                    table,
                    Fold("What each metric is", [Terms(definitions)]),
                    *(Fold(one.title, [one._replace(title="")]) for one in parts),
                ],
                caption(comparison),
            ),
            Section("Training", [page.training] if page.training else []),
            Section("Images", [Legend(page.label_matching), *cards] if cards else []),
            Section("How it was compared", [Items(comparison.facts)]),
        ],
        footer=GUARD,
    ).render()


def _kind(sign: float) -> str:
    return "better" if sign > 0 else "worse" if sign < 0 else "soft"


def _card(page: DiffPage, pair: ImagePair) -> Card:
    image = page.load_image(pair.b)
    gain = _gain(pair, page.reward)
    panels = [_panel(annotated, name, page) for name, annotated in zip(page.comparison.names, pair, strict=True)]
    uri = jpeg_uri(image, LONGEST_SIDE) if image else ""
    return answer_card(pair, panels, uri, Cell(format_value(gain, signed=True), kind=_kind(gain)))


def _panel(image: AnsweredImage, name: str, page: DiffPage) -> Panel:
    outcomes = box_outcomes(image, page.label_matching)
    lines = [
        (f"{label or 'box'}: {outcome}", f"IoU {format_iou(iou)}")
        for label, outcome, iou in zip(image.pred_labels, outcomes.pred, outcomes.pred_ious.tolist(), strict=True)
    ]
    named = f"{name} {image.rewards[page.reward]:.2f}"
    return answer_panel(image, outcomes, named, lines=lines[:MOST_BOXES], text=image.text[:_MOST_TEXT])
