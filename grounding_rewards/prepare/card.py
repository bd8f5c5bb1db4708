"""The dataset card: `README.md` of a prepared folder, from its manifest and `card.md.jinja`."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any


def card_text(manifest: Mapping[str, Any]) -> str:
    """The card as Markdown, with the head that `datasets.load_dataset` reads the splits from.

    Args:
        manifest: of the dataset, as :mod:`grounding_rewards.prepare.manifest` writes it.
    """
    from jinja2 import Environment, StrictUndefined

    # Texts of datasets stay as they are: this is Markdown, not HTML.
    environment = Environment(
        undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True
    )
    # Words in the YAML of the head are written as JSON, which is YAML whatever they hold.
    environment.filters["json"] = lambda value: json.dumps(value, ensure_ascii=False)
    # A bar would end the cell of a table.
    environment.filters["cell"] = lambda value: str(value).replace("|", "&#124;")
    template = environment.from_string(Path(__file__).with_name("card.md.jinja").read_text(encoding="utf-8"))
    # Rows of all splits by source and licence.
    origins = Counter[tuple[str | None, str | None]]()
    for counts in manifest["splits"].values():
        for source, licence, rows in counts["origins"]:
            origins[source, licence] += rows
    skipped = [f"{image} ({split}): {reason}" for split, image, reason in manifest["skipped"]]
    return template.render(
        # Only the manifest of images with several readers has it.
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
