"""Each check: planted in 5, 40 and 100 % of the rows of a clean set it is found, alone; its repair leaves nothing."""

import re
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import pytest

pytest.importorskip("datasets", reason="needs the train extra")

from grounding_rewards.boxes import from_xyxy
from grounding_rewards.doctor.context import CHECKS, SEVERITIES, Defect, Model
from grounding_rewards.doctor.examine import examine
from grounding_rewards.doctor.rows import ImageFacts, ImageRow, RowSource
from grounding_rewards.parsing import get_box_format

LABELS = ("pleural effusion", "lung nodule", "cardiomegaly")
IMAGES = 240


@dataclass
class Row:
    """A row that may be changed: its columns, what its image says, and what the source says of it."""

    split: str
    columns: dict[str, Any]
    facts: ImageFacts | None
    source: dict[str, Any] = field(default_factory=dict)

    @property
    def size(self) -> tuple[int, int]:
        return self.columns["width"], self.columns["height"]


def clean_rows() -> list[Row]:
    """Images of 120 patients in two splits, a quarter without findings, with up to three boxes of different labels."""
    rng = np.random.default_rng(7)
    rows = []
    for k in range(IMAGES):
        width, height = size = 256 + k, 330 + 2 * k
        n = 0 if k % 4 == 0 else 1 + k % 3
        sides = rng.uniform(0.08, 0.3, (n, 2)) * size
        starts = rng.uniform(0, 1, (n, 2)) * (size - sides)
        boxes, labels = np.concatenate([starts, starts + sides], axis=1), [LABELS[(k + j) % 3] for j in range(n)]
        columns = {"id": f"{k:03}.png", "patient_id": f"P-{k // 2:04}", "width": width, "height": height}
        columns |= {"boxes": np.round(boxes, 1).tolist(), "labels": labels, "prompt": "Where are the findings?"}
        signature = rng.integers(-127, 128, 2048, dtype=np.int8).tobytes()
        facts = ImageFacts((width, height), digest=rng.bytes(8), signature=signature)
        rows.append(Row("train" if k < 0.6 * IMAGES else "test", columns, facts))
    return rows


def defects(rows: list[Row], model: Model | None = None) -> list[Defect]:
    """What the doctor finds in rows whose images were looked at."""

    def read() -> Iterator[ImageRow]:
        for row, place in zip(rows, numbered(rows), strict=True):
            yield ImageRow(*place, deepcopy(row.columns), facts=row.facts, **row.source)

    return list(examine(RowSource("images", read, len(rows)), model or QWEN3).defects)


QWEN3, COARSE = Model(get_box_format("qwen3-vl")), Model(get_box_format("chexagent"))


class CharacterCounter:
    """A processor that counts characters for tokens."""

    def tokenizer(self, text: str, **_: object) -> dict[str, list[str]]:
        return {"input_ids": list(text)}


SHORT, LONG = (Model(get_box_format("qwen3-vl"), CharacterCounter(), length) for length in (256, 4096))


# How a row is spoiled. A planting takes the row, its number and all rows of the clean set.


def column(name: str, value: Any) -> Callable[..., None]:
    return lambda row, k, rows: row.columns.update({name: value})


def fact(**facts: Any) -> Callable[..., None]:
    def plant(row: Row, k: int, rows: list[Row]) -> None:
        row.facts = row.facts._replace(**facts)

    return plant


def source(**words: Any) -> Callable[..., None]:
    return lambda row, k, rows: row.source.update(words)


def first_box(change: Callable[..., list[Any]]) -> Callable[..., None]:
    """Change the first box of a row, which takes the box and the size of the image."""

    def plant(row: Row, k: int, rows: list[Row]) -> None:
        row.columns["boxes"][0] = change(row.columns["boxes"][0], row.size)

    return plant


def all_boxes(change: Callable[..., np.ndarray]) -> Callable[..., None]:
    """Change all boxes, (n, 4), of a row, given the size of its image twice."""

    def plant(row: Row, k: int, rows: list[Row]) -> None:
        row.columns["boxes"] = change(np.array(row.columns["boxes"]), np.array(row.size * 2)).tolist()

    return plant


def labels(change: Callable[[str], Any], first: int | None = None) -> Callable[..., None]:
    """Change all labels of a row, or the first ones."""

    def plant(row: Row, k: int, rows: list[Row]) -> None:
        row.columns["labels"][:first] = [change(label) for label in row.columns["labels"][:first]]

    return plant


def missing_file(row: Row, k: int, rows: list[Row]) -> None:
    row.source["expects_image"], row.facts = True, row.facts._replace(size=None, fault="no such file")


def unknown_size(row: Row, k: int, rows: list[Row]) -> None:
    row.columns.update(width=None, height=None)
    row.facts = None


def placeholder(row: Row, k: int, rows: list[Row]) -> None:
    box = [[0, 0, 1, 1], [0, 0, *row.size], [None] * 4][k % 3]
    row.columns.update(boxes=[box], labels=[["No finding", "normal"][k % 2]])


def twice(row: Row, k: int, rows: list[Row]) -> None:
    x1, y1, x2, y2 = row.columns["boxes"][0]
    row.columns["boxes"].append([x1, y1, x2, y2 - 0.02 * (k % 2) * (y2 - y1)])
    row.columns["labels"].append(row.columns["labels"][0])


def three_readers(row: Row, k: int, rows: list[Row]) -> None:
    boxes = np.array(row.columns["boxes"])
    jitter = 0.06 * (boxes[:, 2:] - boxes[:, :2])
    shifted = [boxes, *(boxes + sign * np.hstack([jitter, -jitter]) for sign in (1, 2))]
    row.columns.update(boxes=np.concatenate(shifted).round(1).tolist(), labels=3 * row.columns["labels"])


def crowded(row: Row, k: int, rows: list[Row]) -> None:
    width, height = row.size
    starts = np.array([(x, y) for x in (0, 0.5) for y in np.arange(0, 0.85, 0.17)]) + k / 10 / IMAGES
    boxes = np.hstack([starts, starts + 0.06]) * (width, height, width, height)
    row.columns.update(boxes=boxes.round(1).tolist(), labels=[LABELS[j % 3] for j in range(len(boxes))])


def same_image(row: Row, k: int, rows: list[Row]) -> None:
    row.facts = rows[k - round(0.6 * IMAGES)].facts._replace(size=row.facts.size)


def encoded_again(row: Row, k: int, rows: list[Row]) -> None:
    row.facts = row.facts._replace(signature=rows[k - round(0.6 * IMAGES)].facts.signature)


def other_image(row: Row, k: int, rows: list[Row]) -> None:
    row.facts = row.facts._replace(digest=rows[k - 1].facts.digest)


def same_patient(row: Row, k: int, rows: list[Row]) -> None:
    row.columns["patient_id"] = f"p{(k - round(0.6 * IMAGES)) // 2}"


def patient_in_name(row: Row, k: int, rows: list[Row]) -> None:
    row.columns["file"] = f"patient{(k - round(0.6 * IMAGES)) // 2}_view{k}.png"


def same_study(row: Row, k: int, rows: list[Row]) -> None:
    row.columns["StudyInstanceUID"] = rows[k - round(0.6 * IMAGES)].columns["StudyInstanceUID"]


def told_boxes(row: Row, k: int, rows: list[Row]) -> None:
    row.columns["prompt"] = f"Where? Answer: {[round(value) for value in row.columns['boxes'][0]]}"


def split_name(name: str) -> Callable[..., None]:
    return lambda row, k, rows: setattr(row, "split", name)


# How it is repaired: as the advice says, with the defect, the spoiled rows, and the clean ones.


def restored(defect: Defect, rows: list[Row], clean: list[Row], planted: list[int]) -> list[Row]:
    """The source is right: "restore", "take from the source", "give the size on which the boxes were drawn"."""
    return clean


def without_rows(defect: Defect, rows: list[Row], clean: list[Row], planted: list[int]) -> list[Row]:
    """Rows that the defect names are dropped."""
    bad = {fault.row.key for fault in defect.rows}
    keys = numbered(rows)
    return [row for row, key in zip(rows, keys, strict=True) if key not in bad]


def without_training_rows(defect: Defect, rows: list[Row], clean: list[Row], planted: list[int]) -> list[Row]:
    """Rows of the training split that the defect names as the others' twins are dropped."""
    twins = {int(re.search(r"row (\d+) of train", fault.detail)[1]) for fault in defect.rows}
    keys = numbered(rows)
    return [row for row, (split, n) in zip(rows, keys, strict=True) if split != "train" or n not in twins]


def by_training(defect: Defect, rows: list[Row], clean: list[Row], planted: list[int]) -> list[Row]:
    """All images of a patient or study go to training."""
    return [replace(row, split="train") if k in planted else row for k, row in enumerate(rows)]


def converted(defect: Defect, rows: list[Row], clean: list[Row], planted: list[int]) -> list[Row]:
    """The code of the advice runs on the planted rows, or on the rows that the defect names."""
    bad = {fault.row.key for fault in defect.rows}
    keys = numbered(rows)
    steps = re.findall(r"boxes = (\[\[.*?\] for [\w, ]+ in boxes\])", defect.fix)
    if defect.name == "swapped-corners":
        steps = steps[-1:]
    for k, row in enumerate(rows):
        if k in planted if defect.name in ("box-order", "wrong-frame") else keys[k] in bad:
            for step in steps:
                row.columns["boxes"] = eval(step, dict(row.columns))
    return rows


def without_boxes(defect: Defect, rows: list[Row], clean: list[Row], planted: list[int]) -> list[Row]:
    """Boxes that the defect names are left out, with their labels."""
    for row, key in zip(rows, numbered(rows), strict=True):
        details = [fault.detail for fault in defect.rows if fault.row.key == key]
        bad = {int(re.match(r"box(?:es \d+ and)? (\d+)", detail)[1]) for detail in details}
        for name in ("boxes", "labels"):
            row.columns[name] = [value for n, value in enumerate(row.columns[name]) if n not in bad]
    return rows


def numbered(rows: list[Row]) -> list[tuple[str, int]]:
    numbers: dict[str, int] = {}
    keys = []
    for row in rows:
        numbers[row.split] = numbers.get(row.split, -1) + 1
        keys.append((row.split, numbers[row.split]))
    return keys


class Planting(NamedTuple):
    """What is planted, the repair, which rows it concerns, shares at which it is claimed, and the model after it."""

    check: str
    plant: Callable[..., None]
    repair: Callable[..., list[Row]] = restored
    of: Callable[[Row], bool] = lambda row: True
    shares: tuple[float, ...] = (0.05, 0.4, 1.0)
    model: Model = QWEN3
    repaired_model: Model | None = None
    start: Callable[..., None] | None = None


def positive(row: Row) -> bool:
    return bool(row.columns["boxes"])


def negative(row: Row) -> bool:
    return not row.columns["boxes"]


def held_out(row: Row) -> bool:
    return row.split == "test"


def held_out_positive(row: Row) -> bool:
    return held_out(row) and positive(row)


def trained_on(row: Row) -> bool:
    return row.split == "train"


def trained_on_later(row: Row) -> bool:
    """A training row but the first."""
    return trained_on(row) and row.columns["id"] != "000.png"


def with_a_box(row: Row, k: int, rows: list[Row]) -> None:
    row.columns.update(boxes=[[9, 9, 90, 60 + k]], labels=["mass"])


def large_image(row: Row, k: int, rows: list[Row]) -> None:
    """The row of an image eight times as large."""
    row.columns["boxes"] = [[8 * value for value in box] for box in row.columns["boxes"]]
    row.columns.update(width=8 * row.columns["width"], height=8 * row.columns["height"])
    row.facts = row.facts._replace(size=row.size)


def patient_in_name_alone(row: Row, k: int, rows: list[Row]) -> None:
    del row.columns["patient_id"]
    row.columns["file"] = f"patient{k // 2:05}_view{k}.png"


def patient_suggested(row: Row, k: int, rows: list[Row]) -> None:
    del row.columns["patient_id"]
    row.columns["file"] = f"scan-{k // 2:05}{'ab'[k % 2]}.png"


def suggested_patient(row: Row, k: int, rows: list[Row]) -> None:
    row.columns["file"] = f"scan-{(k - round(0.6 * IMAGES)) // 2:05}{'cd'[k % 2]}.png"


def same_question(row: Row, k: int, rows: list[Row]) -> None:
    row.columns.update(id="000.png", prompt="Where is a nodule?")


def study_alone(row: Row, k: int, rows: list[Row]) -> None:
    del row.columns["patient_id"]
    row.columns["StudyInstanceUID"] = f"1.2.{k}"


SYNONYMS = {"pleural effusion": "effusion", "lung nodule": "nodule", "cardiomegaly": "enlarged heart"}
ALL = (1.0,)
# A whole split is judged: where few rows are so, their boxes are named one by one.
FEW, MANY = (0.05, 0.4), (0.4, 1.0)
SMALL = first_box(lambda box, size: [*box[:2], box[0] + 2, box[1] + 9])
IN_QWEN3 = column("box_format", "qwen3-vl")

PLANTINGS = [
    Planting("unreadable-row", column("boxes", "none")),
    Planting("unreadable-row", source(damage="line 3 is no object")),
    Planting("missing-image", missing_file),
    Planting("broken-image", fact(problem="truncated", signature=None), without_rows, shares=FEW),
    Planting("broken-image", fact(problem="truncated", signature=None), shares=ALL),
    Planting("outside-image", source(outside="../a.png leads out of it")),
    Planting("one-grey", fact(blank="every pixel is 7", signature=None)),
    Planting("burned-in", fact(burned_in=True)),
    Planting("missing-size", unknown_size),
    Planting("exchanged-size", lambda row, k, rows: row.columns.update(width=row.size[1], height=row.size[0])),
    Planting("image-size", lambda row, k, rows: row.columns.update(width=round(1.3 * row.columns["width"]))),
    Planting("box-order", all_boxes(lambda boxes, size: from_xyxy(boxes, "xywh")), converted, positive),
    Planting("box-order", all_boxes(lambda boxes, size: from_xyxy(boxes, "cxcywh")), converted, positive),
    Planting("box-order", all_boxes(lambda boxes, size: boxes[:, [0, 2, 1, 3]]), converted, positive),
    Planting("box-order", all_boxes(lambda boxes, size: boxes[:, [1, 3, 0, 2]]), converted, positive),
    Planting("box-order", all_boxes(lambda b, size: np.hstack([b[:, :2], b[:, :2] + b[:, 2:]])), converted, positive),
    Planting("box-order", all_boxes(lambda b, size: from_xyxy(b, "xywh")[:, [1, 0, 3, 2]]), converted, positive),
    Planting("box-order", all_boxes(lambda boxes, size: boxes[:, [1, 0, 3, 2]]), converted, positive, MANY),
    Planting("wrong-frame", all_boxes(lambda boxes, size: boxes / size * 1000), converted, positive, MANY),
    Planting("wrong-frame", all_boxes(lambda boxes, size: boxes / size * 1024), converted, positive, MANY),
    Planting("wrong-frame", all_boxes(lambda boxes, size: boxes / size * 100), converted, positive, ALL),
    Planting("wrong-frame", all_boxes(lambda b, size: b / size * 1000), converted, positive, ALL, start=large_image),
    Planting("normalised-boxes", all_boxes(lambda boxes, size: boxes / size), converted, positive),
    Planting("negative-placeholder", placeholder, without_boxes, negative),
    Planting("not-finite", first_box(lambda box, size: [None, *box[1:]]), of=positive),
    Planting("not-finite", all_boxes(lambda boxes, size: boxes.astype(str)), of=positive),
    Planting("swapped-corners", first_box(lambda box, size: [box[2], *box[1:2], box[0], box[3]]), converted, positive),
    Planting("swapped-corners", all_boxes(lambda boxes, size: boxes[:, [2, 3, 0, 1]]), converted, positive),
    Planting("no-area", first_box(lambda box, size: [*box[:2], box[0], box[3]]), of=positive),
    Planting("off-image", first_box(lambda box, size: [-60, box[1], -20, box[3]]), of=positive),
    Planting("partly-off-image", first_box(lambda b, size: [*b[:2], 1.05 * size[0], b[3]]), converted, positive),
    Planting("constant-box", first_box(lambda box, size: [20, 30, 80, 90]), of=positive),
    Planting("constant-box", first_box(lambda box, s: [s[0] / 4, s[1] / 4, s[0] / 2, s[1] / 2]), of=positive),
    Planting("giant-boxes", first_box(lambda box, size: [0, 0, *size]), of=positive),
    Planting("small-boxes", SMALL, without_boxes, positive, FEW),
    Planting("small-boxes", SMALL, of=positive, shares=ALL),
    Planting("duplicate-boxes", twice, without_boxes, positive),
    Planting("unmerged-readers", three_readers, of=positive),
    Planting("label-count", lambda row, k, rows: row.columns["labels"].pop(), of=positive),
    Planting("blank-label", labels(lambda label: " ", 1), of=positive),
    Planting("blank-label", labels(lambda label: "nan"), of=positive),
    Planting("label-spelling", labels(str.upper, 1), of=positive),
    Planting("label-spelling", labels(lambda s: s.replace("leu", "lue").replace("omeg", "omg"), 1), of=positive),
    Planting("label-spelling", labels(SYNONYMS.get, 1), of=positive),
    Planting("image-leak", same_image, without_training_rows, held_out),
    Planting("copy-leak", encoded_again, without_training_rows, held_out),
    Planting("patient-leak", same_patient, by_training, held_out),
    Planting("patient-leak", patient_in_name, by_training, held_out, start=patient_in_name_alone),
    Planting("patient-leak", suggested_patient, by_training, held_out, start=patient_suggested),
    Planting("study-leak", same_study, by_training, held_out, start=study_alone),
    Planting("split-names", split_name("Train"), of=trained_on, shares=FEW),
    Planting("label-not-in-train", labels(lambda label: "hernia"), of=held_out_positive),
    Planting("rounded-id", column("patient_id", "1.02E+11")),
    Planting("repeated-id", column("id", "000.png"), of=trained_on_later),
    # The image has another question first.
    Planting("repeated-id", same_question, of=trained_on_later),
    Planting("repeated-image", other_image, without_rows, trained_on_later),
    # Few rows without boxes say nothing of the set.
    Planting("negatives", with_a_box, of=negative, shares=ALL),
    Planting("negatives", lambda row, k, rows: row.columns.update(boxes=[], labels=[]), of=positive, shares=ALL),
    Planting("prompt-missing", column("prompt", " ")),
    Planting("prompt-format", column("prompt", "Answer with [x, y, w, h].")),
    Planting("answer-in-prompt", told_boxes, of=positive),
    Planting("answer-in-prompt", column("prompt", "This image is normal. Where are the findings?"), of=negative),
    Planting("box-format", column("box_format", "qwen9"), model=Model()),
    Planting("box-format", column("box_format", "paligemma"), shares=FEW, model=Model(), start=IN_QWEN3),
    Planting("gold-length", crowded, without_rows, positive, FEW, SHORT),
    Planting("gold-length", crowded, lambda defect, rows, clean, planted: rows, positive, ALL, SHORT, LONG),
    Planting("gold-reward", first_box(lambda b, s: [100.4, 100.4, 104.6, 105.2 + b[0] % 9]), of=positive, model=COARSE),
]


@pytest.mark.parametrize("planting", PLANTINGS, ids=lambda planting: planting.check)
def test_a_mistake_is_found_at_every_share_and_repaired(planting):
    for share in planting.shares:
        clean = clean_rows()
        for k, row in enumerate(clean):
            if planting.start:
                planting.start(row, k, clean)
        rows = deepcopy(clean)
        concerned = [k for k, row in enumerate(rows) if planting.of(row)]
        # Whole pairs: the two images of a patient stand together.
        planted = [k for j, k in enumerate(concerned) if j // 2 * 7 % 20 < 20 * share]
        assert defects(clean, planting.model) == []
        for k in planted:
            planting.plant(rows[k], k, clean)
        found = defects(rows, planting.model)
        assert [defect.name for defect in found] == [planting.check], share
        repaired = planting.repair(found[0], rows, clean, planted)
        left = defects(repaired, planting.repaired_model or planting.model)
        assert [(defect.name, defect.found, defect.rows[:2]) for defect in left] == [], share


def test_every_check_is_planted_and_says_what_to_do():
    # Of the folder, in test_examine.py.
    assert set(CHECKS) - {planting.check for planting in PLANTINGS} == {"unfinished-folder"}
    # The advice depends on what is found.
    assert {name for name, check in CHECKS.items() if not check.fix} == {"box-order", "wrong-frame"}
    assert all(check.severity in SEVERITIES and check.why for check in CHECKS.values())
