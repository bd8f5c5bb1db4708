"""Fill in the templates of the pages, and embed what they show: style sheets, programs and images.

A template extends ``base.html.jinja``, which forbids the page to load anything: a page is one file. Autoescape is
always on: what a model or a dataset wrote is text and never markup.
"""

from __future__ import annotations

import base64
import hashlib
import io
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from grounding_rewards.images.decoding import small_image
from grounding_rewards.metrics.estimates import format_interval, format_value

if TYPE_CHECKING:
    from jinja2 import Environment
    from PIL.Image import Image

#: Size of an image's JPEG at most; a noisy image is compressed more.
PICTURE_BYTES = 40_000


def fill_template(template: str, **values: Any) -> str:
    """Fill in a template of ``report/templates``.

    Args:
        template: name of its file.
        **values: what it names. ``style`` and ``script``, contents of :func:`read_asset`, are what the page may apply
            and run.

    Returns:
        An HTML document that can be encoded in UTF-8: lone surrogates become "?".

    Raises:
        jinja2.UndefinedError: the template names a value that is not given.

    Example:
        >>> fill_template("base.html.jinja", title="<b>", style="", script="").count("&lt;b&gt;")
        1
    """
    document = _environment().get_template(template).render(**values)
    return document.encode("utf-8", "replace").decode("utf-8")


@cache
def _environment() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("grounding_rewards.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.policies["json.dumps_kwargs"] = {"allow_nan": False, "separators": (",", ":")}
    environment.globals["digest"] = digest
    environment.filters |= {"value": format_value, "interval": format_interval, "block": lambda one: type(one).__name__}
    return environment


@cache
def read_asset(name: str) -> str:
    """The text of a style sheet or a program of ``report/``."""
    return (files("grounding_rewards.report") / name).read_text(encoding="utf-8")


def digest(content: str) -> str:
    """How a Content-Security-Policy names a style sheet or a program that it allows.

    Example:
        >>> digest("")
        'sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU='
    """
    return f"sha256-{base64.b64encode(hashlib.sha256(content.encode('utf-8')).digest()).decode('ascii')}"


def data_uri(content: bytes, media_type: str) -> str:
    """Bytes as an address, so that they stand within the page.

    Example:
        >>> data_uri(b"abc", "image/png")
        'data:image/png;base64,YWJj'
    """
    return f"data:{media_type};base64,{base64.b64encode(content).decode('ascii')}"


def jpeg_uri(image: Image, longest_side: int) -> str:
    """An image as an address of a small JPEG.

    Args:
        image: the image.
        longest_side: in pixels of the JPEG, which has at most :data:`PICTURE_BYTES`.
    """
    annotated = small_image(image, longest_side)
    for quality in (85, 70, 50, 30):
        content = _jpeg(annotated, quality)
        if len(content) <= PICTURE_BYTES:
            break
    while len(content) > PICTURE_BYTES:
        annotated = annotated.resize((max(1, annotated.width // 2), max(1, annotated.height // 2)))
        content = _jpeg(annotated, quality)
    return data_uri(content, "image/jpeg")


def _jpeg(image: Image, quality: int) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, format="JPEG", quality=quality, optimize=True)
    return buffer.getvalue()
