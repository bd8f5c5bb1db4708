"""The page of a comparison: metrics of two runs side by side, training curves, and images with the answers of both.

It shows images and what models wrote about them: guard it like the images.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from grounding_rewards.metrics.answered_image import AnsweredImage
from grounding_rewards.metrics.boxes_shown import MOST_BOXES, drawn_answer, format_iou, has_sides, image_summary
from grounding_rewards.metrics.comparison import Change, p_cell
from grounding_rewards.metrics.outcomes import box_outcomes
from grounding_rewards.report.comparison_tables import Comparison
from grounding_rewards.report.metric_groups import group_metrics
from grounding_rewards.report.plots import Plot
from grounding_rewards.report.render import jpeg_uri, read_asset, render

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


class Section(NamedTuple):
    """Images under one heading."""

    title: str
    note: str
    pairs: Sequence[ImagePair]


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


def choose_images(pairs: Sequence[ImagePair], reward: str, *, count: int = IMAGES_PER_SECTION) -> list[Section]:
    """Choose the images to show: largest losses, largest gains, the middle, unchanged images, normal images.

    Losses come first, and the middle of the ranking shows what to expect; gains alone would flatter any model. No image
    is shown twice.

    Args:
        pairs: all images that both runs have.
        reward: name of the reward whose change ranks them.
        count: images per section at most.

    Returns:
        The sections that have an image.

    Example:
        >>> image = {"width": 9, "height": 9, "gt": [[0, 0, 5, 5]], "gt_labels": ["mass"]}
        >>> pair = ImagePair(*(AnsweredImage("a", **image, rewards={"R4": value}) for value in (0.5, 0.7)))
        >>> [section.title for section in choose_images([pair], "R4")]
        ['Largest gains']
    """
    findings = sorted((pair for pair in pairs if not pair.a.is_normal), key=lambda pair: -_gain(pair, reward))
    normal = sorted(
        (pair for pair in pairs if pair.a.is_normal),
        key=lambda pair: (-_gain(pair, reward), -pair.b.rewards[reward]),
    )
    up = [pair for pair in findings if _gain(pair, reward) > 0]
    down = [pair for pair in findings if _gain(pair, reward) < 0]
    same = [pair for pair in findings if _gain(pair, reward) == 0]
    gains, losses = up[:count], down[::-1][:count]
    rest = findings[len(gains) : len(findings) - len(losses)]
    start = max(0, (len(rest) - count) // 2)
    middle = rest[start : start + count]
    shown = {pair.a.id for pair in middle}
    unchanged = _spread([pair for pair in same if pair.a.id not in shown], count)
    tally = f"{len(up)} of {len(findings)} images with findings have a higher {reward} in B, {len(down)} a lower one"
    clean_a, clean_b = (sum(not len(pair[side].pred) for pair in normal) for side in (0, 1))
    sections = [
        Section("Largest losses", f"{tally}; the {len(losses)} that lost most.", losses),
        Section("Largest gains", f"{tally}; the {len(gains)} that gained most.", gains),
        Section("In the middle", "Images from the middle of the ranking by change: what to expect.", middle),
        Section("Unchanged", f"{len(same)} of {len(findings)} images with findings have the same {reward}.", unchanged),
        Section(
            "Normal images",
            "Nothing is to be found here; any box is invented. "
            f"Without a box: {clean_a} of {len(normal)} in A, {clean_b} of {len(normal)} in B.",
            _spread(normal, count),
        ),
    ]
    return [section for section in sections if section.pairs]


def _gain(pair: ImagePair, reward: str) -> float:
    return pair.b.rewards[reward] - pair.a.rewards[reward]


def _spread(pairs: Sequence[ImagePair], count: int) -> Sequence[ImagePair]:
    """The first and the last pairs, ``count`` in all."""
    if len(pairs) <= count:
        return pairs
    head = (count + 1) // 2
    return [*pairs[:head], *pairs[len(pairs) - (count - head) :]]


def render_diff_page(page: DiffPage) -> str:
    """Write the whole page.

    Returns:
        An HTML document that refers to nothing outside itself.
    """
    comparison = page.comparison
    a, b = comparison.names
    found = comparison.found.metrics
    tiles = [found[key] for key in dict.fromkeys((comparison.found.main, *_TILES)) if key in found]
    metrics = {key: found[key] for key in comparison.metrics if _is_measured(found[key])}
    numbers = iter(range(len(page.pairs)))
    sections = [
        {
            "title": section.title,
            "note": section.note,
            "images": [_image(page, pair, next(numbers)) for pair in section.pairs],
        }
        for section in choose_images(page.pairs, page.reward)
    ]
    return render(
        "diff.html.jinja",
        title=f"{b} compared with {a}",
        subtitle=page.subtitle,
        comparison=comparison,
        names=(a, b),
        tiles=list(filter(_is_measured, tiles))[:_MOST_TILES],
        metrics=metrics,
        metric_groups=group_metrics(metrics),
        sections=sections,
        compares_labels=page.label_matching != "ignore",
        training=page.training,
        p=p_cell,
        style=read_asset("page.css") + read_asset("diff_page.css"),
        script="",
    )


def _is_measured(change: Change) -> bool:
    return not (math.isnan(change.a.value) and math.isnan(change.b.value))


def _image(page: DiffPage, pair: ImagePair, number: int) -> dict[str, Any]:
    """What the template needs to draw an image."""
    image = page.load_image(pair.b)
    return {
        "name": f"image-{number}",
        "id": pair.b.id,
        "findings": ", ".join(pair.b.gt_labels) or "normal",
        "gain": _gain(pair, page.reward),
        "uri": image and jpeg_uri(image, LONGEST_SIDE),
        "width": f"{pair.b.width:g}",
        "height": f"{pair.b.height:g}",
        "size": (pair.b.width, pair.b.height),
        "sides": any(map(has_sides, pair)),
        "answers": [
            _answer(annotated, name, side, page)
            for side, name, annotated in zip("ab", page.comparison.names, pair, strict=True)
        ],
    }


def _answer(image: AnsweredImage, name: str, side: str, page: DiffPage) -> dict[str, Any]:
    outcomes = box_outcomes(image, page.label_matching)
    ious = map(format_iou, outcomes.pred_ious.tolist())
    return {
        "side": side,
        "name": name,
        "reward": image.rewards[page.reward],
        "bar": f"{100 * min(max(image.rewards[page.reward], 0), 1):.0f}",
        "summary": image_summary(image, outcomes),
        "text": image.text[:_MOST_TEXT],
        "boxes": list(zip(image.pred_labels, outcomes.pred, ious, strict=True))[:MOST_BOXES],
        "rectangles": drawn_answer(image, outcomes),
    }
