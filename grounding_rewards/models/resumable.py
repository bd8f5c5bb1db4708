"""Generate answers into a file, so that a run that was killed can be continued.

`completions.jsonl` is written once all answers are there. Until then `completions.part-0.jsonl` has those of the first
process, one per line, and `completions.settings.json` has how they are generated. When the same command is given
again, a line that was cut off is dropped and the missing batches are generated. Batches and their seeds follow from
the settings alone, so the answers are those of an uninterrupted run, whatever the number of processes.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from grounding_rewards.columns import BOX_COLUMNS, SIZE_COLUMNS
from grounding_rewards.common.atomic_files import check_settings, whole_file, write_whole
from grounding_rewards.common.validation import Interval, check_number
from grounding_rewards.images.decoding import rows_without_images
from grounding_rewards.images.resize import image_pixel_limit
from grounding_rewards.models.generate import GREEDY, OnProgress, Sampling, generate_batch, generate_with_vllm
from grounding_rewards.models.load import UnloadedModel, digest_of_weights, process_state

#: Columns copied beside the answer, so that the file can be scored and evaluated by itself.
_CARRIED = (
    *("patient_id", *BOX_COLUMNS, "box_format", *SIZE_COLUMNS),
    # Of images that are asked about at several.
    "temperature",
)
# Settings that are digests: an error can say only that they differ.
_DIGESTS = ("model", "dataset")


def generate_to_file(
    model: UnloadedModel,
    processor: Any,
    dataset: Any,
    path: Path,
    sampling: Sampling = GREEDY,
    *,
    batch_size: int = 256,
    seed: int = 0,
    overwrite: bool = False,
    on_progress: OnProgress | None = None,
) -> list[list[str]]:
    """Generate answers into a file as :func:`grounding_rewards.models.generate.generate` does, and go on after a stop.

    Under `accelerate launch` or `torchrun` every process generates its share of the batches, and the first one merges
    them. A line of the file has ``id``, ``sample`` (from 0), ``completion``, the patient, and the columns that rewards
    read.

    Args:
        model: from :func:`grounding_rewards.models.load.load_later`; it is loaded where answers are missing.
        processor: its processor.
        dataset: rows with ``prompt`` (conversational), ``image`` and ``id``; without ``id``, the row's number from 0.
        path: a file that ends in .jsonl.
        sampling: how the answers are decoded, and how many there are per image.
        batch_size: answers generated at the same time; samples depend on it.
        seed: of the sampling.
        overwrite: drop answers that were generated with other settings; they are refused without it.
        on_progress: as for :func:`grounding_rewards.models.generate.generate`; counts what this process generates now.

    Returns:
        For each row its ``sampling.samples`` answers, on every process.

    Raises:
        ValueError: ``batch_size`` is below 1, two rows have one id, or the file was started with other settings,
            another model or another dataset; the message says which.
    """
    check_number("batch_size", batch_size, Interval(1), "Give what fits into memory.")
    samples = sampling.samples
    rows = rows_without_images(dataset)
    files = _Files(Path(path), _image_ids(rows), samples)
    content = "".join(json.dumps(row, sort_keys=True, default=str) for row in rows)
    settings = {
        "model": digest_of_weights(model.path),
        "dataset": hashlib.sha256(content.encode()).hexdigest()[:16],
        "backend": model.backend,
        **asdict(sampling),
    }
    if model.backend == "vllm":
        settings |= {"max_model_len": model.vllm_options.max_model_len, "dtype": model.vllm_options.dtype}
    if sampling.temperature > 0:
        # Greedy answers do not depend on these.
        settings |= {"seed": seed, "batch_size": batch_size}
    if (limit := image_pixel_limit(processor)) is not None:
        settings["max_image_pixels"] = limit
    state = process_state()
    problem = files.problem_with(settings)
    # No process may drop what another one has yet to look at.
    state.wait_for_everyone()
    if problem and not overwrite:
        raise problem
    if problem and state.is_main_process:
        files.drop()
    state.wait_for_everyone()
    done = files.read()
    size = max(1, batch_size // samples)
    batches = enumerate(range(start, min(start + size, len(rows))) for start in range(0, len(rows), size))
    left = [(number, batch) for number, batch in batches if any(key not in done for key in files.keys_of(batch))]
    mine = left[state.process_index :: state.num_processes]
    # Before anything is written: a model that cannot be loaded has begun nothing.
    loaded: Any = model.load() if mine else None
    # No process may write before all have read.
    state.wait_for_everyone()
    if left or not files.path.is_file() or files.parts():
        if state.is_main_process:
            write_whole(files.settings_path, json.dumps(settings, indent=2) + "\n")
        state.wait_for_everyone()
        images, tokens, total = 0, 0, sum(len(batch) for _, batch in mine)
        ask = generate_with_vllm if model.backend == "vllm" else generate_batch
        with files.part(state.process_index) as part:
            for number, batch in mine:
                # So that its answers do not depend on what was generated before.
                own = int(np.random.SeedSequence([seed, number]).generate_state(1, np.uint32)[0])
                answers = ask(loaded, processor, [dataset[i] for i in batch], sampling, seed=own)
                owners = [rows[i] for i in batch for _ in range(samples)]
                written = zip(owners, files.keys_of(batch), answers.texts, strict=True)
                part.write("".join(_line(row, key, text) for row, key, text in written if key not in done))
                part.flush()
                images, tokens = images + len(batch), tokens + answers.tokens
                if on_progress is not None:
                    on_progress(images, total, tokens)
        state.wait_for_everyone()
        if state.is_main_process:
            files.merge()
        state.wait_for_everyone()
        done = files.read()
    return [[json.loads(done[key])["completion"] for key in files.keys_of([i])] for i in range(len(rows))]


_Key = tuple[str, int]


class _Files:
    """The file of answers, its parts, and the settings beside them.

    A key is the name of an image and the number of the sample.
    """

    def __init__(self, path: Path, ids: Sequence[str], samples: int) -> None:
        if path.suffix != ".jsonl":
            raise ValueError(f"Expected a file that ends in .jsonl for `path`, got {str(path)!r}. Rename it.")
        self.path, self.ids, self.samples = path, ids, samples
        self.settings_path = path.with_suffix(".settings.json")

    def keys_of(self, rows: Iterable[int]) -> list[_Key]:
        return [(self.ids[i], sample) for i in rows for sample in range(self.samples)]

    def problem_with(self, settings: Mapping[str, Any]) -> ValueError | None:
        """Why answers that are there cannot be continued; None where they can."""
        if not self.settings_path.is_file():
            if found := self._files():
                return ValueError(
                    f"Expected {str(self.settings_path)!r} beside {str(found[0])!r}, got none. Give another path, or "
                    "overwrite it: without its settings the file is not one to go on with."
                )
            return None
        try:
            before = json.loads(self.settings_path.read_text(encoding="utf-8"))
        except ValueError:
            before = {}
        remedy = "Give the same again, or another path, or overwrite the answers that are there."
        try:
            check_settings(self.path, before, settings, remedy, digests=_DIGESTS)
        except ValueError as error:
            return error
        return None

    def drop(self) -> None:
        """Remove the answers that are there, and their settings."""
        for path in self._files():
            path.unlink()
        self.settings_path.unlink(missing_ok=True)

    def read(self) -> dict[_Key, str]:
        """The complete lines, by key."""
        lines = {}
        for path in self._files():
            with path.open(encoding="utf-8", newline="\n") as file:
                for number, line in enumerate(file, 1):
                    # A line without a newline was cut off when the process was killed.
                    if line.endswith("\n"):
                        lines[_key(line, number, path)] = line
        return lines

    @contextmanager
    def part(self, process: int) -> Iterator[Any]:
        """The part of one process, open for appending, without a line that was cut off."""
        file = self.path.with_suffix(f".part-{process}.jsonl")
        with file.open("ab+") as raw:
            raw.seek(0)
            whole = sum(len(line) for line in raw if line.endswith(b"\n"))
            raw.truncate(whole)
        with file.open("a", encoding="utf-8", newline="\n") as text:
            yield text

    def merge(self) -> None:
        """Write all answers in the order of the dataset, and remove the parts."""
        lines = self.read()
        keys = self.keys_of(range(len(self.ids)))
        if missing := [key for key in keys if key not in lines]:
            raise ValueError(
                f"Expected the parts of all processes in {str(self.path.parent)!r}, got no answer for image "
                f"{missing[0][0]!r}. Several machines need one folder that all of them see."
            )
        with whole_file(self.path) as unfinished, unfinished.open("w", encoding="utf-8", newline="\n") as file:
            file.writelines(lines[key] for key in keys)
        for part in self.parts():
            part.unlink()

    def _files(self) -> list[Path]:
        return [*([self.path] if self.path.is_file() else []), *self.parts()]

    def parts(self) -> list[Path]:
        # No glob: the name may contain brackets.
        files = self.path.parent.iterdir() if self.path.parent.is_dir() else ()
        opening = f"{self.path.stem}.part-"
        return sorted(file for file in files if file.name.startswith(opening) and file.suffix == ".jsonl")


def _key(line: str, number: int, file: Path) -> _Key:
    try:
        row = json.loads(line)
        return str(row["id"]), int(row["sample"])
    except (ValueError, TypeError, KeyError):
        raise ValueError(
            f"Expected an answer in line {number} of {str(file)!r}, got {line[:80]!r}. Delete that line and go on."
        ) from None


def _line(row: Mapping[str, Any], key: _Key, text: str) -> str:
    carried = {name: row[name] for name in _CARRIED if row.get(name) is not None}
    # ASCII escapes can hold the lone surrogates of a text that was cut off.
    return json.dumps({"id": key[0], "sample": key[1], "completion": text, **carried}) + "\n"


def _image_ids(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    ids = [str(row.get("id", i)) for i, row in enumerate(rows)]
    seen: dict[str, int] = {}
    for i, name in enumerate(ids):
        if seen.setdefault(name, i) != i:
            raise ValueError(
                f"Expected a different `id` in every row, got {name!r} in rows {seen[name]} and {i}. "
                "Answers are kept by it: add what tells the rows apart."
            )
    return ids
