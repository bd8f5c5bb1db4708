"""The dataset card: `README.md` of a prepared folder, from its manifest."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

_SHOWN_SKIPPED = 50


def card_text(manifest: Mapping[str, Any]) -> str:
    """The card as Markdown, with the head that `datasets.load_dataset` reads the splits from."""
    parts = [part(manifest) for part in (_head, _source, _counts, _agreement, _how)]
    return "\n\n".join("\n".join(lines) for part in parts if (lines := list(part))) + "\n"


def _head(manifest: Mapping[str, Any]) -> Iterator[str]:
    yield "---"
    yield "license: other"
    # JSON is YAML, whatever stands in the words
    yield f"license_name: {json.dumps(manifest['source']['licence'], ensure_ascii=False)}"
    yield "configs:"
    yield "- config_name: default"
    yield "  data_files:"
    for split, counts in manifest["splits"].items():
        yield f"  - split: {split}"
        yield "    path:"
        yield from (f"    - {shard['file']}" for shard in counts["shards"])
    yield "---"


def _source(manifest: Mapping[str, Any]) -> Iterator[str]:
    source, settings = manifest["source"], manifest["settings"]
    yield f"# {source['title']}, prepared for the task {settings['task']}"
    yield ""
    yield "Images of patients: the licence of the source holds for this copy too. Keep it off public places."
    yield ""
    yield f"- Source: {source['url'] or source['title']}"
    yield f"- Licence: {source['licence']}"
    if source["note"]:
        yield f"- Note: {source['note']}"
    command = "prepare-mix" if settings["dataset"] == "mix" else f"prepare {settings['dataset']}"
    yield f"- Made by `grounding-rewards {command}`; what else it depends on is listed below."
    yield '- Load it with `datasets.load_dataset("parquet", data_files=…, streaming=True)`, or name this folder as the'
    yield "  `dataset` of a training run."


def _counts(manifest: Mapping[str, Any]) -> Iterator[str]:
    splits = manifest["splits"]
    yield "## What is in it"
    yield ""
    yield from _table(
        ("split", "images", "rows", "rows without boxes", "share", "boxes"),
        [
            (
                split,
                counts["images_with_rows"],
                counts["rows"],
                counts["negatives"],
                f"{counts['negatives'] / max(counts['rows'], 1):.1%}",
                sum(counts["boxes"].values()),
            )
            for split, counts in splits.items()
        ],
    )
    yield ""
    if manifest["settings"].get("readers") == "any-of":
        yield "A row without boxes is one where no reader drew any. All readers' boxes are counted, so that a finding"
        yield "counts once for each reader who drew it; the column `boxes` holds those of one reader."
        yield ""
    yield from _origins(splits)
    yield "Rows with a finding, and boxes of it:"
    yield ""
    yield from _table(
        ("finding", *splits),
        [
            (label, *(f"{one['rows_with'].get(label, 0)} / {one['boxes'].get(label, 0)}" for one in splits.values()))
            for label in manifest["vocabulary"]
        ],
    )
    yield ""
    yield _split_sentence(manifest)
    for sentence in left_out_sentences(manifest):
        yield ""
        yield sentence
    skipped = [f"{image} ({split}): {reason}" for split, image, reason in manifest["skipped"]]
    yield from _listed("were left out because they cannot be used", skipped)
    yield from _listed("could not be read and were left out", manifest.get("unreadable", ()))


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
    small = manifest.get("small_boxes")
    if small and small["boxes"]:
        alone = small["without_other"]
        have = "has no other box, and is no negative" if alone == 1 else "have no other box, and are no negatives"
        yield (
            f"{small['boxes']} boxes on {small['images']} images are too small (--smallest-box) and left out; {alone} "
            f"of these images {have}."
        )


def _listed(what: str, images: Sequence[str]) -> Iterator[str]:
    """The first images of which something is said; nothing where there is none."""
    if images:
        yield ""
        yield f"{len(images)} images {what}:"
        yield ""
        yield from (f"- {image}" for image in images[:_SHOWN_SKIPPED])
        if len(images) > _SHOWN_SKIPPED:
            yield "- the others are in `manifest.json`"


def _origins(splits: Mapping[str, Any]) -> Iterator[str]:
    origins = Counter[tuple[str | None, str | None]]()
    for counts in splits.values():
        origins.update({(source, licence): rows for source, licence, rows in counts["origins"]})
    if origins:
        yield "Rows of each source, by the columns `source` and `licence`:"
        yield ""
        rows = [(source or "–", licence or "–", count) for (source, licence), count in origins.items()]
        yield from _table(("source", "licence", "rows"), rows)
        yield ""


def _split_sentence(manifest: Mapping[str, Any]) -> str:
    images, without = manifest["images"]["count"], manifest["images_without_patient"]
    unassigned, drawn = manifest["images_without_own_split"], manifest["images_drawn"]
    words = [f"Of {images} images {images - unassigned} have the dataset's own split."]
    if drawn:
        words.append(
            f"{drawn} were drawn by a seeded hash of the patient, or of the image where the patient is not known; "
            "those whose patient has a split are there."
        )
    elif unassigned:
        words.append(f"{unassigned} without one are where their patient is, else all in one split: none was drawn.")
    if copies := manifest["images_with_copies"]:
        words.append(
            f"{copies} images are copies of one another, by their pixels; patients who share one are in one split."
        )
    if without:
        words.append(
            f"The patient of {without} images is not known, so nobody can say whether a patient is in two splits."
        )
    else:
        words.append("No patient is in two splits.")
    return " ".join(words)


def _agreement(manifest: Mapping[str, Any]) -> Iterator[str]:
    agreement = manifest.get("agreement")
    if agreement is None:
        return
    overall = agreement["overall"]
    yield "## How well the readers agree"
    yield ""
    yield f"{agreement['pairs']} pairs of readers on {agreement['images']} images; no model can be judged better than"
    yield "this against one of them. In brackets are 95 % intervals over images."
    yield ""
    yield from _table(
        ("finding", "on images", *(f"F1 at IoU {threshold}" for threshold in overall["f1"]), "mean IoU"),
        [
            (
                "all" if one["label"] is None else one["label"],
                one["findings"],
                *map(_estimate, (*one["f1"].values(), one["mean_iou"])),
            )
            for one in (overall, *agreement["labels"])
        ],
    )


def _estimate(ends: Sequence[float | None]) -> str:
    value, low, high = ends
    return "–" if value is None else f"{value:.3f} [{low:.3f}, {high:.3f}]"


def _how(manifest: Mapping[str, Any]) -> Iterator[str]:
    yield "## How it was made"
    yield ""
    settings = manifest["settings"].items()
    yield from _table(
        ("setting", "value"), [(k, f"`{json.dumps(value, ensure_ascii=False)}`") for k, value in settings]
    )
    yield ""
    yield from _table(("package", "version"), list(manifest["versions"].items()))
    yield ""
    yield "`manifest.json` holds the same, and the checksums that `grounding-rewards prepare-verify` looks at."


def _table(head: Sequence[Any], rows: Sequence[Sequence[Any]]) -> Iterator[str]:
    yield f"| {' | '.join(map(str, head))} |"
    yield f"|{' --- |' * len(head)}"
    for row in rows:
        yield f"| {' | '.join(str(cell).replace('|', '&#124;') for cell in row)} |"
