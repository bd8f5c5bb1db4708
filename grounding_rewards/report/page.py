"""The frame of every page: a title, a verdict, then sections of tables, plots, lists and images with boxes.

A page is one HTML file that loads nothing and runs nothing but its own program; what a model or a dataset wrote is text
and never markup. Keep a page with images as private as the images.
"""

from __future__ import annotations

import base64
import hashlib
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from grounding_rewards.images.decoding import small_image
from grounding_rewards.report.tables import Cell

if TYPE_CHECKING:
    from jinja2 import Environment
    from PIL.Image import Image

#: Size of an image's JPEG at most; a noisy image becomes smaller.
PICTURE_BYTES = 40_000
#: Beneath pages with images.
GUARD = "Shows images and what models wrote about them: keep it as private as the images."


class Section(NamedTuple):
    """A part of the page under a heading.

    blocks: tables, plots, cards and further sections; a dict of words and what they mean; a list of sentences.
    kind: `fold` for what is shown on a click, or a class of `page.css`.
    """

    title: str
    blocks: Sequence[Any]
    note: str = ""
    kind: str = ""


class Panel(NamedTuple):
    """An image with boxes, and what is said about them.

    boxes: corners, class, label and, where it is judged, the outcome of each.
    name, summary: beneath the image.
    view: the `viewBox`; the image alone where it is empty.
    """

    boxes: Sequence[tuple[Any, ...]]
    name: str
    summary: str
    view: str = ""


class Card(NamedTuple):
    """One image, which is in the file once, with a panel for each answer to it.

    title: above it, and its id.
    uri: of the image, empty where there is none.
    size: its width and height in the units of the boxes.
    value: above it to the right.
    """

    title: str
    id: str
    uri: str
    size: tuple[float, float]
    panels: Sequence[Panel]
    value: Cell = Cell("")


class Cards(NamedTuple):
    """Images next to each other; `small` ones are as wide as a thumbnail."""

    cards: Sequence[Card]
    small: bool = False


class Gallery(NamedTuple):
    """Images that the page's program draws from a block of JSON.

    data: about all of them, by the words that the program knows.
    images: a record of each, which is made while the page is written: not all are in memory at once.
    """

    data: Mapping[str, Any]
    images: Iterable[Mapping[str, Any]]


class Legend(NamedTuple):
    """The legend of outcomes of boxes and, with `label_matching`, the rule by which a box is right."""

    label_matching: str = ""


@dataclass(frozen=True, kw_only=True)
class Page:
    """The contents of a page; sections without blocks are left out.

    Attributes:
        title: at its head.
        sections: in order.
        subtitle: beneath the title.
        opening: blocks above the verdict.
        verdict: the result in a sentence.
        footer: a sentence at the end.
        style: name of a further style sheet.
        script: name of a program.
    """

    title: str
    sections: Sequence[Section]
    subtitle: str = ""
    opening: Sequence[Any] = ()
    verdict: str = ""
    footer: str = ""
    style: str = ""
    script: str = ""

    def render(self) -> str:
        """The page as an HTML document that refers to nothing outside itself and can be encoded in UTF-8."""
        # Style sheets and the script stand in the document itself: `self` has only the names of their files.
        style = read_asset("page.css")
        if self.style:
            style += read_asset(self.style)
        script = read_asset(self.script) if self.script else ""
        sections = [section for section in self.sections if section.blocks]
        template = _environment().get_template("page.html.jinja")
        document = template.render(page=self, sections=sections, style=style, script=script)
        # Lone surrogates, which no UTF-8 has, become "?".
        return document.encode("utf-8", "replace").decode("utf-8")


class Choice(NamedTuple):
    """Images under one heading, from which :func:`choose_images` chooses some.

    places: indices of the images in a list of all, in a meaningful order, such as the worst first.
    how: which of them are chosen: the `first`, those in the `middle`, or `even`, at equal distances over the whole.
    """

    title: str
    note: str
    places: Sequence[int]
    how: str = "even"


def choose_images(choices: Sequence[Choice], count: int) -> list[Choice]:
    """Choose at most `count` images for each heading, none of them twice.

    Args:
        choices: in order: an image that one has taken is not there for those after it.
        count: of images.

    Returns:
        The choices with the places of the chosen images alone, without those that are left with none.

    Example:
        >>> chosen = choose_images([Choice("worst", "", [4, 2, 1], "first"), Choice("all", "", range(5))], 2)
        >>> [(choice.title, choice.places) for choice in chosen]
        [('worst', [4, 2]), ('all', [0, 3])]
    """
    taken_places: set[int] = set()
    results = []
    for choice in choices:
        free = [place for place in choice.places if place not in taken_places]
        if choice.how == "first":
            places = free[:count]
        elif choice.how == "middle":
            start = max(0, (len(free) - count) // 2)
            places = free[start : start + count]
        else:
            indices = np.linspace(0, len(free) - 1, min(count, len(free)))
            places = [free[round(index)] for index in indices]
        taken_places.update(places)
        if places:
            results.append(choice._replace(places=places))
    return results


@cache
def _environment() -> Environment:
    """The ``jinja2`` environment of the templates of pages: it escapes every text, and knows what they call."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("grounding_rewards.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    # `tojson` writes what JavaScript can read, so no NaN, and no spaces, as pages are large.
    environment.policies["json.dumps_kwargs"] = {"allow_nan": False, "separators": (",", ":")}
    environment.globals["digest"] = digest
    # The name of a block's class, by which a template knows how to draw it.
    environment.filters["block"] = lambda content: type(content).__name__
    return environment


@cache
def read_asset(name: str) -> str:
    """The text of a style sheet or a program of ``report/``."""
    return (files("grounding_rewards.report") / name).read_text(encoding="utf-8")


def digest(content: str) -> str:
    """The SHA-256 of a style sheet or a script, in the form by which a Content-Security-Policy allows it.

    Example:
        >>> digest("")
        'sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU='
    """
    return f"sha256-{base64.b64encode(hashlib.sha256(content.encode('utf-8')).digest()).decode('ascii')}"


def data_uri(content: bytes, media_type: str) -> str:
    """An address that holds the bytes themselves, so that they are part of the page.

    Example:
        >>> data_uri(b"abc", "image/png")
        'data:image/png;base64,YWJj'
    """
    return f"data:{media_type};base64,{base64.b64encode(content).decode('ascii')}"


def jpeg_uri(image: Image, longest_side: int) -> str:
    """A data URI with the image as a JPEG of at most :data:`PICTURE_BYTES`.

    Args:
        image: the image.
        longest_side: of the JPEG at most, in pixels.
    """
    thumbnail = small_image(image, longest_side)
    # Noise compresses badly: a noisy image is halved until its file is small enough.
    while True:
        buffer = io.BytesIO()
        thumbnail.save(buffer, format="JPEG", quality=70, optimize=True)
        if buffer.tell() <= PICTURE_BYTES:
            return data_uri(buffer.getvalue(), "image/jpeg")
        thumbnail = thumbnail.reduce(2)
