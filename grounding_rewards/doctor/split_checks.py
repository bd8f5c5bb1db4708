"""Checks of the names of splits, and of what one split or source has and another lacks."""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterator

from grounding_rewards.data.held_out import patient_in_name
from grounding_rewards.doctor.case import NAME_OF_FILE, PART_OF_FILE, Case, Defect
from grounding_rewards.doctor.group_checks import labels_of
from grounding_rewards.doctor.raw_rows import ImageRow
from grounding_rewards.sources.base import SPLIT_NAMES, split_name

_TRAIN = "train"
# How seldom chance alone leaves images with boxes, or without, out of a split or source; a label; and all the labels,
# of so many patients. Of so many groups of a column, the largest.
_CHANCE, _SELDOM, _UNLIKELY, _FEWEST, _FEWEST_PATIENTS, _MOST_GROUPS = 1e-3, 0.05, 1e-7, 3, 8, 50
# How seldom chance keeps labels of so many patients in training, over all choices of labels.
_UNLIKELY_UNTESTED = 1e-5
# So large a part of other images have what a split lacks. In a file that is not sorted so many images have no boxes.
_USUAL, _MIXED = 0.5, 0.05
# What words of prompts and values of other columns are called; words have so many letters.
_WORD, _COLUMN, _LETTERS = "prompt has the word ", "image has ", re.compile(r"[^\W\d_]{3,}")
# With fewer boxes per label these are free phrases, each of which occurs once.
_FEWEST_PER_LABEL = 3
# What an image may be or have, beside labels and words.
_WITH, _WITHOUT = "a box", "no box"


def check_splits(case: Case) -> Iterator[Defect]:
    """Names of splits that differ by a slip, and what one split or source has and another lacks."""
    alike: defaultdict[str, list[str]] = defaultdict(list)
    for split in case.images:
        alike[split_name(split)].append(split)
    slips = [split for split in case.images if split_name(split) == split and is_misspelt(split)]
    for splits in (*(one for one in alike.values() if len(one) > 1), *([slips] if slips else [])):
        found = f"{', '.join(f'{split}: {case.images[split]} images' for split in splits)}."
        yield case.defect("split-names", count=len(splits), of=len(case.images), found=found)
    unnamed = [row for row in case.rows if row.columns.get("split") in ("", None)]
    if unnamed and any(row.columns.get("split") for row in case.rows):
        shown = [(row, f"no split, read as {row.split}") for row in unnamed]
        found = f"{len(unnamed)} of {len(case.rows)} rows name no split."
        yield case.defect("split-names", shown, of=len(case.rows), found=found)
    yield from _unseen(case)
    yield from _untested(case)
    for column in case.columns:
        if column != PART_OF_FILE:
            yield from _lacking(case, column)
    if "without-findings" not in case.found:
        yield from _boxless_end(case)


def is_misspelt(split: str) -> bool:
    """Whether the name of a split is nearly that of another: with `ing` behind, two letters exchanged, or one lost.

    Example:
        >>> [is_misspelt(split) for split in ("training", "tets", "vaildation", "tran", "test", "testA", "train2017")]
        [True, True, True, True, False, False, False]
    """
    word = split.casefold()
    for right in SPLIT_NAMES:
        places = range(len(right))
        lost = (right[:k] + right[k + 1 :] for k in places)
        turned = (right[:k] + right[k + 1 : k + 2] + right[k] + right[k + 2 :] for k in places)
        if word != right and word in (f"{right}ing", *lost, *turned):
            return True
    return False


def _lacking(case: Case, column: str) -> Iterator[Defect]:
    """Groups that never have what others have, which chance does not explain.

    Patients count: the images of each are alike.
    """
    groups = case.columns[column].tolist()
    everyone: defaultdict[str, set[str]] = defaultdict(set)
    having: defaultdict[str, defaultdict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    labels: set[str] = set()
    kinds = _told(case) if column == "split" else []
    for k, (row, group, count) in enumerate(zip(case.rows, groups, case.counts, strict=True)):
        if not group:
            continue
        patient = row.patient_id or patient_in_name(row.file) or row.somebody
        everyone[group].add(patient)
        named = labels_of(row)
        labels |= named
        for what in {_WITH if count else _WITHOUT, *named, *(kinds[k] if kinds else ())}:
            having[what][group].add(patient)
    # Where each image is of a source of its own, none is compared.
    large = Counter(
        {group: len(patients) for group, patients in everyone.items() if len(patients) >= _FEWEST}
    ).most_common(_MOST_GROUPS)
    lost: defaultdict[str, dict[str, tuple[float, float]]] = defaultdict(dict)
    for what, of in having.items():
        # Of a kind of images, the groups that lack it too say nothing.
        among = of if what in (_WITH, _WITHOUT) else everyone
        patients = sum(map(len, of.values()))
        for group in [group for group, _ in large if group not in of]:
            share = min(1.0, patients / max(1, sum(len(everyone[one]) for one in among if one != group)))
            lost[group][what] = share, (1 - share) ** len(everyone[group])
    for what, check in ((_WITH, "without-findings"), (_WITHOUT, "without-negatives")):
        bare = [group for group, mine in lost.items() if mine.get(what, (0, 1))[1] < _CHANCE]
        # A source of images with findings alone is usual.
        if bare and (column == "split" or (what == _WITH and column != NAME_OF_FILE)):
            images = sum(map(groups.count, bare))
            kind = sum((_WITH if count else _WITHOUT) == what for count in case.counts)
            found = f"{column} {', '.join(bare)}: none of {images} images has {what}; "
            found += f"elsewhere {kind} of {len(groups) - images}."
            yield case.defect(check, count=images, of=len(case.rows), found=found)
    said: set[str] = set()
    is_told = "without-label" in case.found or "label-not-in-train" in case.found
    for group, mine in lost.items():
        # A group that shares no label is a dataset of its own. What training lacks is said already.
        seldom = {what: chance for what, (_, chance) in mine.items() if what in labels and chance < _SELDOM}
        is_own = not any(group in having[label] and len(having[label]) > 1 for label in labels)
        is_rare = len(everyone[group]) >= _FEWEST_PATIENTS and math.prod(seldom.values()) < _UNLIKELY
        is_renamed = column == "split" and (group == _TRAIN or is_told)
        if is_rare and not is_own and not is_renamed:
            owners = {one for what in seldom for one in having[what]}
            found = f"{column} {group}: on none of the images of {len(everyone[group])} patients is "
            if len(owners) == 1:
                found = f"{column} {min(owners)}: on its images alone is "
            found += f"{', '.join(map(repr, sorted(seldom))):.200}."
            if found in said:
                continue
            said.add(found)
            yield case.defect("without-label", count=len(seldom), of=len(labels), found=found)
    for check, first in (("prompt-shift", _WORD), ("lopsided-split", _COLUMN)) if column == "split" else ():
        # Of two splits each lacks what the other has: the smaller one is named.
        for group in sorted(lost, key=groups.count):
            lacks = [what for what, (share, chance) in lost[group].items() if share >= _USUAL and chance < _UNLIKELY]
            if here := sorted(what.removeprefix(first) for what in lacks if what.startswith(first)):
                found = f"{group}: no {first.strip()} {', '.join(here):.200}, as most others have."
                yield case.defect(check, count=groups.count(group), of=len(groups), found=found)
                break


def _told(case: Case) -> list[set[str]]:
    """The words of the prompt of each row, and its values of columns that tell kinds of images apart."""
    kinds = [
        set(map(f"{_WORD}{{!r:.40}}".format, _LETTERS.findall((row.prompt or "").casefold()))) for row in case.rows
    ]
    # A site, or another origin, that is held out is a design.
    for column, values in case.other_columns.items():
        for mine, value in zip(kinds, values.tolist(), strict=True):
            mine.add(f"{_COLUMN}{column} {value}")
    return kinds


def _boxless_end(case: Case) -> Iterator[Defect]:
    """A file whose last images all have no boxes, although images with and without are mixed before."""
    in_file = sorted(range(len(case.rows)), key=lambda k: case.rows[k].line)
    has_boxes = [bool(case.counts[k]) for k in in_file]
    end = len(has_boxes) - has_boxes[::-1].index(True) if any(has_boxes) else 0
    before, after = has_boxes[:end], in_file[end:]
    share = before.count(False) / max(1, end)
    longest = max((len(run) for run in "".join("-+"[has] for has in before).split("+")), default=0)
    if end >= len(after) > 2 * longest and share >= _MIXED and share ** len(after) < _UNLIKELY:
        shown = [(case.rows[k], "in the end of the file, where no image has a box") for k in after]
        found = f"None of the last {len(after)} images of the file has a box; before, {1 - share:.0%} have."
        yield case.defect("without-findings", shown, of=len(case.rows), found=found)


def _untested(case: Case) -> Iterator[Defect]:
    """Labels that training alone has, of so many patients that chance does not keep them all there."""
    if len(case.labels) * _FEWEST_PER_LABEL > case.labels.total():
        return
    held = {row.split for row in case.rows} - {_TRAIN}
    split_of = {row.somebody: row.split for row in case.rows}
    of: defaultdict[str, set[str]] = defaultdict(set)
    for place in case.labelled():
        of[place.label].add(place.row.somebody)
    inside = {label: who for label, who in of.items() if all(split_of[one] == _TRAIN for one in who)}
    having = set[str]().union(*inside.values())
    tested = sum(split in held for split in split_of.values())
    chance = (1 - len(having) / max(1, len(split_of))) ** tested
    if (
        len(inside) > 1
        and _TRAIN in split_of.values()
        and chance < _UNLIKELY_UNTESTED
        and "without-label" not in case.found
    ):
        names = ", ".join(map(repr, sorted(inside)))
        found = f"{', '.join(sorted(held))}: on none of the images of {tested} patients is {names:.200}."
        yield case.defect("without-label", count=len(inside), of=len(of), found=found)


def _unseen(case: Case) -> Iterator[Defect]:
    """Labels that the training split does not have."""
    images: defaultdict[str, dict[str, set[int]]] = defaultdict(lambda: defaultdict(set))
    for place in case.labelled():
        images[place.label][place.row.split].add(place.row.number)
    if not any(_TRAIN in of for of in images.values()) or len(images) * _FEWEST_PER_LABEL > case.labels.total():
        return
    shown: list[tuple[ImageRow | None, str]] = []
    for label, of in images.items():
        if _TRAIN not in of:
            where = (f"{len(one)} {'image' if len(one) == 1 else 'images'} of {split}" for split, one in of.items())
            shown.append((None, f"{label!r:.80} on {', '.join(where)}"))
    if shown:
        yield case.defect("label-not-in-train", shown, of=len(images))
