"""Answers to evaluate: films, and the completions for each, from a model or from a log."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grounding_rewards.columns import SIZE_COLUMNS
from grounding_rewards.data.completion_logs import read_completions
from grounding_rewards.data.film_paths import is_below
from grounding_rewards.data.images import open_film
from grounding_rewards.data.load import light_rows, load_dataset_image

if TYPE_CHECKING:
    from datasets import Dataset
    from PIL.Image import Image

_IMAGE_COLUMNS = ("image_path", "image", "file")


@dataclass(frozen=True)
class Answers:
    """n films and the completions for each.

    Attributes:
        rows: one a film, without prompt and image.
        texts: for each film one completion or several, the first of which is judged.
        load_image: the k-th film as an image, or None.
    """

    rows: list[dict[str, Any]]
    texts: list[list[Any]]
    load_image: Callable[[int], Image | None]


def read_log(
    paths: Sequence[Path],
    *,
    dataset: Dataset | None = None,
    text_column: str | None = None,
    sizes: Mapping[str, float | None] | None = None,
    allow_outside: bool = False,
) -> Answers:
    """Read a log of completions together with the films that they answer.

    Args:
        paths: files or folders, as :func:`grounding_rewards.data.completion_logs.read_completions` takes them. Several
            rows with one `id` are several answers to one film, the first of which is judged.
        dataset: the films; without it the rows of the log have `boxes`, `width` and `height`. Films and rows belong
            together by `id`, or, where the log has none, by their order.
        text_column: the column with the completions.
        sizes: sizes for films that have none, by column.
        allow_outside: whether images that the log names may lie outside the folders of its files.

    Raises:
        ValueError: a file is broken, or films and completions do not fit each other.
    """
    completions, rows = read_completions(paths, text_column=text_column)
    known = {name: value for name, value in (sizes or {}).items() if value is not None}
    unknown = sorted(known.keys() - set(SIZE_COLUMNS))
    if unknown:
        raise ValueError(f"Expected {', '.join(SIZE_COLUMNS)} for `sizes`, got {unknown[0]!r}. Name one of them.")
    if all(row.get("id") is not None for row in rows):
        texts: dict[str, list[Any]] = {}
        first: dict[str, dict[str, Any]] = {}
        for text, row in zip(completions, rows, strict=True):
            texts.setdefault(str(row["id"]), []).append(text)
            _refuse_other_film(row, first.setdefault(str(row["id"]), row))
        if dataset is not None:
            return _by_name(texts, first, dataset, known)
        return _films_of_rows(list(first.values()), list(texts.values()), paths, known, allow_outside)
    single = [[text] for text in completions]
    if dataset is None:
        return _films_of_rows(rows, single, paths, known, allow_outside)
    if len(single) != dataset.num_rows:
        raise ValueError(
            f"Expected a column `id` in the log, or as many completions as films, got {len(single)} completions for "
            f"{dataset.num_rows} films. Add the film's `id` to every row."
        )
    films = [{**known, **row} for row in light_rows(dataset)]
    return Answers(_with_formats(films, rows), single, partial(load_dataset_image, dataset))


def _refuse_other_film(row: Mapping[str, Any], first: Mapping[str, Any]) -> None:
    for column in ("boxes", "labels", "width", "height", "ignore_boxes"):
        if row.get(column) != first.get(column):
            raise ValueError(
                f"Expected the same `{column}` in all rows of one film, got others for id {row['id']!r}. Rows with one "
                "id are answers to one film: give films names of their own."
            )


def _by_name(
    texts: Mapping[str, list[Any]],
    logged: Mapping[str, Mapping[str, Any]],
    dataset: Dataset,
    sizes: Mapping[str, float],
) -> Answers:
    names = [str(name) for name in dataset["id"]] if "id" in dataset.column_names else []
    chosen = [k for k, name in enumerate(names) if name in texts]
    if len(chosen) < len(texts):
        unknown = next(name for name in texts if name not in set(names))
        raise ValueError(
            f"Expected the `id` of a film of the dataset in every row of the log, got {unknown!r}, and "
            f"{len(texts) - len(chosen) - 1} more that are not. Give the split that was answered with --split."
        )
    if len(chosen) < len(names):
        raise ValueError(
            f"Expected a completion for every film, got {len(chosen)} of {len(names)}; the first without one is "
            f"{next(name for name in names if name not in texts)!r}. Answer all films, or name those that were "
            "answered with --films."
        )
    films = [{**sizes, **row} for row in light_rows(dataset)]
    rows = _with_formats(films, [logged[name] for name in names])
    return Answers(rows, [texts[name] for name in names], partial(load_dataset_image, dataset))


def _with_formats(films: list[dict[str, Any]], logged: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The films with what only the log knows: the box format, and the size of the image that the model saw."""
    names = ("box_format", "resized_width", "resized_height")
    return [
        {**film, **{name: row[name] for name in names if row.get(name) is not None}}
        for film, row in zip(films, logged, strict=True)
    ]


def _films_of_rows(
    rows: Sequence[Mapping[str, Any]],
    texts: list[list[Any]],
    paths: Sequence[Path],
    sizes: Mapping[str, float],
    allow_outside: bool,
) -> Answers:
    folders = [path if path.is_dir() else path.parent for path in paths]
    films = []
    for row in rows:
        found = _find_image(row, folders, allow_outside)
        # A path that the row brought along and that was not found, or may not be opened, does not stay.
        films.append({**sizes, **row, "image_path": None if found is None else str(found)})
    return Answers(films, texts, partial(_open_listed, [film.get("image_path") for film in films]))


def _find_image(row: Mapping[str, Any], folders: Sequence[Path], allow_outside: bool) -> Path | None:
    given = next((row[name] for name in _IMAGE_COLUMNS if isinstance(row.get(name), str)), None)
    if given is None:
        return None
    # An absolute path stays as it is when joined to a folder.
    there = (folder / given for folder in folders if (folder / given).is_file())
    return next((path for path in there if allow_outside or is_below(folders, path)), None)


def _open_listed(paths: Sequence[str | None], k: int) -> Image | None:
    path = paths[k]
    return None if path is None else open_film(path)
