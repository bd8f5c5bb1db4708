"""The page of a study: what was found in words, plots, tables, and images with the answers of several arms.

It shows images and what models wrote about them: guard it like the images.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from grounding_rewards.metrics.answered_image import AnsweredImage
from grounding_rewards.metrics.boxes_shown import drawn_answer, image_summary
from grounding_rewards.metrics.outcomes import box_outcomes
from grounding_rewards.report.plots import Plot
from grounding_rewards.report.render import jpeg_uri, read_asset, render

if TYPE_CHECKING:
    from PIL.Image import Image

#: Longest side in pixels of an image on the page.
LONGEST_SIDE = 256


class Tile(NamedTuple):
    """A number at the top of the page."""

    heading: str
    value: str
    note: str


class PageTable(NamedTuple):
    """A table; a row of one cell is a heading, and cells beginning with a number stand to the right."""

    note: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]


class Section(NamedTuple):
    """A part of the page under a heading."""

    title: str
    note: str
    plots: Sequence[Plot] = ()
    tables: Sequence[PageTable] = ()


class GalleryImage(NamedTuple):
    """An image with the answers of several models, by name."""

    image: Image
    answers: Sequence[tuple[str, AnsweredImage]]


class StudyPage(NamedTuple):
    """What the page of a study shows.

    title, subtitle: at its head.
    summary: sentences.
    tiles: numbers at the top.
    sections: in order.
    gallery: images, of which nobody chose any by its result; empty where there are no images.
    facts: how it was made.
    """

    title: str
    subtitle: str
    summary: Sequence[str]
    tiles: Sequence[Tile]
    sections: Sequence[Section]
    gallery: Sequence[GalleryImage]
    facts: Sequence[str]


def render_study_page(page: StudyPage) -> str:
    """Write the whole page.

    Returns:
        An HTML document that refers to nothing outside itself.
    """
    return render(
        "study.html.jinja",
        title=page.title,
        subtitle=page.subtitle,
        summary=page.summary,
        tiles=page.tiles,
        sections=[
            {
                "title": section.title,
                "note": section.note,
                "tables": section.tables,
                "plots": section.plots,
            }
            for section in page.sections
        ],
        gallery=[_image(image) for image in page.gallery],
        facts=page.facts,
        style=read_asset("page.css") + read_asset("study_page.css"),
        script="",
    )


def _image(image: GalleryImage) -> dict[str, object]:
    first = image.answers[0][1]
    return {
        "id": first.id,
        "findings": ", ".join(first.gt_labels) or "normal",
        "uri": jpeg_uri(image.image, LONGEST_SIDE),
        "width": f"{first.width:g}",
        "height": f"{first.height:g}",
        "answers": [_answer(name, answered) for name, answered in image.answers],
    }


def _answer(name: str, image: AnsweredImage) -> dict[str, object]:
    outcomes = box_outcomes(image, "ignore")
    return {
        "name": name,
        "summary": image_summary(image, outcomes),
        "rectangles": drawn_answer(image, outcomes),
    }
