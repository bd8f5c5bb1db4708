"""Fuzz the reading of boxes, guided by coverage: no exception, finite boxes, both ways of reading agree.

    pip install atheris
    python scripts/checks/fuzz_parsing.py                    ten minutes
    python scripts/checks/fuzz_parsing.py --seconds 60 --keep tests/parsing/corpus.jsonl

libFuzzer mutates texts and keeps those that reach new code. It starts from an answer in every format and the texts of
`--keep`; a text that breaks a promise, or takes more than a second, ends the run and is printed. At the end the
collected texts are reduced to a few that reach the same code, and written to `--keep`, where the tests replay them.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPOSITORY))

#: Longer texts only repeat what shorter ones reach.
MAX_BYTES = 400
BOXES = [[100.0, 50.0, 400.0, 300.0], [500.0, 200.0, 800.0, 600.0]]
SIZES = {"width": 1000, "height": 800, "resized_width": 1008, "resized_height": 812}


def read_input(data: bytes) -> tuple[str, str]:
    """The format that the first byte names, and the text of all others."""
    from grounding_rewards.parsing import list_box_formats

    names = list_box_formats()
    return names[data[0] % len(names)] if data else names[0], data[1:].decode("utf-8", "surrogateescape")


def write_input(name: str, text: str) -> bytes:
    from grounding_rewards.parsing import list_box_formats

    return bytes([list_box_formats().index(name)]) + text.encode("utf-8", "surrogateescape")


def fuzz(arguments: list[str]) -> None:
    """Run libFuzzer in this process, which ends with it."""
    import atheris

    with atheris.instrument_imports(include=["grounding_rewards.parsing", "grounding_rewards.boxes"]):
        from tests.parsing.promises import check_promises

    def check(data: bytes) -> None:
        name, text = read_input(data)
        check_promises(text, name)

    # To reduce a corpus libFuzzer runs its own command again, by this name.
    atheris.Setup([f"{sys.executable} {__file__} --child", *arguments], check)
    atheris.Fuzz()


def write_seeds(corpus: Path, keep: Path) -> None:
    from grounding_rewards.parsing import format_boxes, list_box_formats

    seeds = [
        write_input(name, text)
        for name in list_box_formats()
        for text in (format_boxes(BOXES, name, labels=["mass", "nodule"], **SIZES), format_boxes([], name, **SIZES))
    ]
    if keep.exists():
        seeds += [write_input(*json.loads(line)) for line in keep.read_text(encoding="utf-8").splitlines()]
    for index, seed in enumerate(seeds):
        (corpus / f"seed{index:04}").write_bytes(seed)


def run_child(*arguments: str) -> int:
    return subprocess.run([sys.executable, __file__, "--child", *arguments], check=False).returncode


def main() -> None:
    if sys.argv[1:2] == ["--child"]:
        fuzz(sys.argv[2:])
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=600, help="how long (600)")
    parser.add_argument("--keep", type=Path, default=REPOSITORY / "tests" / "parsing" / "corpus.jsonl")
    parser.add_argument("--largest", type=int, default=500, help="texts to keep at most, the shortest first (500)")
    parser.add_argument("--folder", type=Path, default=REPOSITORY / "build" / "fuzz", help="where libFuzzer works")
    options = parser.parse_args()
    corpus, reduced = options.folder / "corpus", options.folder / "reduced"
    for folder in (corpus, reduced):
        folder.mkdir(parents=True, exist_ok=True)
        for old in folder.iterdir():
            old.unlink()
    write_seeds(corpus, options.keep)
    limits = (f"-max_len={MAX_BYTES}", "-timeout=1", f"-artifact_prefix={options.folder}/")
    if run_child(*limits, f"-max_total_time={options.seconds}", "-print_final_stats=1", str(corpus)):
        broken = [path for path in options.folder.iterdir() if path.is_file()]
        for path in broken:
            print(f"{path}: {read_input(path.read_bytes())!r}")
        sys.exit("A promise was broken, see above.")
    run_child(*limits, "-merge=1", str(reduced), str(corpus))
    kept = sorted((path.read_bytes() for path in reduced.iterdir()), key=lambda data: (len(data), data))[
        : options.largest
    ]
    lines = [json.dumps(read_input(data), ensure_ascii=True) for data in kept]
    options.keep.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    print(f"{len(lines)} texts kept in {options.keep}")


if __name__ == "__main__":
    main()
