"""How lists of labelled sentences are judged: the table of docs/negatives.md.

python scripts/judge_sentences.py                   write it, from tests/parsing/sentences/*/*.tsv
python scripts/judge_sentences.py --check           only say whether it is up to date; exit code 1 if not
python scripts/judge_sentences.py list.tsv ...      print the table of these lists, and every sentence judged wrongly

A list has a sentence on each line, LABEL<TAB>REGION<TAB>TEXT, where the label is `negative` (it states that there is
nothing to mark) or `finding` (anything else). `\\n` in a text is a line break. Lists in the folder `development` were
seen while the rules were written; those in `unseen` were not, so only they tell how often the rules are wrong.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import NamedTuple

from page_parts import marks_of, replace_part

from grounding_rewards.parsing.prose import states_nothing
from grounding_rewards.whole_files import write_whole

ROOT = Path(__file__).resolve().parent.parent
PAGE, LISTS = ROOT / "docs" / "negatives.md", ROOT / "tests" / "parsing" / "sentences"
LABELS = ("negative", "finding")
MARKS = marks_of("judged")


class Sentence(NamedTuple):
    """A line of a list, and whether it was judged wrongly."""

    label: str
    region: str
    text: str
    wrong: bool


def judge(path: Path) -> list[Sentence]:
    """The sentences of a list, judged.

    Raises:
        ValueError: a line has no label, region and text.
    """
    sentences = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        label, _, rest = line.partition("\t")
        region, _, text = rest.partition("\t")
        if label not in LABELS or not region or not text:
            raise ValueError(
                f"Expected negative or finding, a region and a text, between tabs, for line {number} of {path}, got "
                f"{line!r:.80}. Write LABEL<TAB>REGION<TAB>TEXT."
            )
        negative = states_nothing(text.replace("\\n", "\n"))
        sentences.append(Sentence(label, region, text, negative != (label == "negative")))
    return sentences


def table(paths: list[Path]) -> str:
    """Counts of missed negatives and passing findings, for each list and region."""
    rows = [
        "| list | seen in development | region | negatives | missed | findings | passing |",
        "|---|---|---|---|---|---|---|",
    ]
    for path in paths:
        sentences = judge(path)
        seen = "yes" if path.parent.name == "development" else "no"
        regions = sorted({sentence.region for sentence in sentences})
        for region in [*regions, "all"] if len(regions) > 1 else regions:
            mine = [one for one in sentences if region in (one.region, "all")]
            cells = []
            for label in LABELS:
                wrong = [one.wrong for one in mine if one.label == label]
                cells += [str(len(wrong)), _share(sum(wrong), len(wrong))]
            rows.append(f"| {path.stem} | {seen} | {region} | {' | '.join(cells)} |")
    return "\n".join(rows)


def _share(part: int, whole: int) -> str:
    return f"{part} ({part / whole:.1%})" if whole else "–"


def page() -> str:
    """docs/negatives.md with the table of the lists in the repository."""
    return replace_part(PAGE.read_text(encoding="utf-8"), MARKS, table(sorted(LISTS.glob("*/*.tsv"))))


def main() -> int:
    """Write, check or print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("lists", nargs="*", type=Path, help="print the table of these instead")
    parser.add_argument("--check", action="store_true", help="only compare")
    options = parser.parse_args()
    if options.lists:
        print(table(options.lists))
        for path in options.lists:
            for one in judge(path):
                if one.wrong:
                    print(f"{path.stem}: {one.label}, {one.region}: {one.text}")
        return 0
    written = page()
    if options.check:
        current = PAGE.read_text(encoding="utf-8") == written
        print("up to date" if current else "out of date: run python scripts/judge_sentences.py")
        return int(not current)
    write_whole(PAGE, written)
    return 0


if __name__ == "__main__":
    sys.exit(main())
