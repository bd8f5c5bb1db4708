"""The dataset card: `README.md` of a prepared folder, from its manifest and `card.md.jinja`."""

from __future__ import annotations

import functools
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jinja2 import Template


def card_text(manifest: Mapping[str, Any]) -> str:
    """The card as Markdown, with the head that `datasets.load_dataset` reads the splits from."""
    origins = Counter[tuple[str | None, str | None]]()
    for counts in manifest["splits"].values():
        origins.update({(source, licence): rows for source, licence, rows in counts["origins"]})
    skipped = [f"{image} ({split}): {reason}" for split, image, reason in manifest["skipped"]]
    return _template().render(
        **{"agreement": None, **manifest},
        origins=origins,
        left_out=list(left_out_sentences(manifest)),
        lists_of_images={
            "were left out because they cannot be used": skipped,
            "could not be read and were left out": manifest.get("unreadable", ()),
        },
    )


def left_out_sentences(manifest: Mapping[str, Any]) -> Iterator[str]:
    """What `negatives`, `smallest_box` and the weights of a mix left out, one sentence each.

    >>> small = {"boxes": 3, "images": 2, "without_other": 1}
    >>> list(left_out_sentences({"small_boxes": small}))
    ['3 boxes on 2 images are too small (--smallest-box) and left out; 1 of these images has no other box, and is no \
negative.']
    """
    if images := manifest.get("negatives_left_out"):
        yield f"{images} images without findings are left out of train, for the wanted share of negatives."
    for folder, rows in manifest.get("rows_left_out", {}).items():
        yield f"{rows} rows of {folder} are left out of train, for the weights of the mix."
    small_boxes = manifest.get("small_boxes")
    if small_boxes and small_boxes["boxes"]:
        alone = small_boxes["without_other"]
        verb = "has no other box, and is no negative" if alone == 1 else "have no other box, and are no negatives"
        yield (
            f"{small_boxes['boxes']} boxes on {small_boxes['images']} images are too small (--smallest-box) and left "
            f"out; {alone} of these images {verb}."
        )


@functools.cache
def _template() -> Template:
    from jinja2 import Environment, StrictUndefined

    # Texts of datasets stay as they are: this is Markdown, not HTML.
    environment = Environment(
        undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True
    )
    environment.filters |= {
        # JSON is YAML, whatever the words are.
        "json": functools.partial(json.dumps, ensure_ascii=False),
        "plus": lambda names, more: [*names, *more],
        "row": _table_row,
        "head": lambda names: f"{_table_row(names)}\n|{' --- |' * len(names)}",
        "share": lambda counts: f"{counts['negatives'] / max(counts['rows'], 1):.1%}",
        "rows_and_boxes": _rows_and_boxes,
        "estimate": _estimate,
        "f1_columns": lambda agreement: [f"F1 at IoU {threshold}" for threshold in agreement["overall"]["f1"]],
    }
    return environment.from_string(Path(__file__).with_name("card.md.jinja").read_text(encoding="utf-8"))


def _table_row(cells: Iterable[Any]) -> str:
    return f"| {' | '.join(str(cell).replace('|', '&#124;') for cell in cells)} |"


def _rows_and_boxes(label: str, splits: Mapping[str, Any]) -> list[str]:
    """A finding, and for each split the rows with it and the boxes of it."""
    cells = [f"{counts['rows_with'].get(label, 0)} / {counts['boxes'].get(label, 0)}" for counts in splits.values()]
    return [label, *cells]


def _estimate(ends: Sequence[float | None]) -> str:
    value, low, high = ends
    return "–" if value is None else f"{value:.3f} [{low:.3f}, {high:.3f}]"
