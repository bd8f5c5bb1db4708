"""Every defect that is planted into a clean set is found by its name, alone; the clean set and near misses pass."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("datasets", reason="needs the train extra")
Image = pytest.importorskip("PIL.Image", reason="needs the train extra")

from grounding_rewards.data import prompts  # noqa: E402
from grounding_rewards.data.checks import row_problems  # noqa: E402
from grounding_rewards.data.prompt_claims import prompt_contradictions  # noqa: E402
from grounding_rewards.doctor.box_defects import BoxFit, box_defect  # noqa: E402
from grounding_rewards.doctor.case import SEVERITIES  # noqa: E402
from grounding_rewards.doctor.examine import CHECKS, Checkup, examine  # noqa: E402
from grounding_rewards.doctor.label_checks import label_variants  # noqa: E402
from grounding_rewards.doctor.model import Model  # noqa: E402
from grounding_rewards.doctor.raw_rows import open_rows  # noqa: E402
from grounding_rewards.parsing import get_box_format, list_box_formats  # noqa: E402

LABELS = ("pleural effusion", "lung nodule", "cardiomegaly")
IMAGES = 60
QWEN3 = Model(get_box_format("qwen3-vl"))

DrawnImage = dict
Folder = Callable[[list[DrawnImage]], str]


def clean_images() -> list[DrawnImage]:
    """Sixty images of thirty patients, a quarter without findings, in three splits; no two have a size in common."""
    rng = np.random.default_rng(7)
    annotated_images = []
    for k in range(IMAGES):
        width, height = 256 + k, 330 + 2 * k
        n = 0 if k % 4 == 0 else 1 + k % 3
        sides = rng.uniform(0.08, 0.3, (n, 2)) * (width, height)
        starts = rng.uniform(0, 1, (n, 2)) * ((width, height) - sides)
        boxes = np.round(np.concatenate([starts, starts + sides], axis=1), 1)
        annotated_images.append(
            {
                "file": f"{k:03}.png",
                "width": width,
                "height": height,
                "boxes": boxes.tolist(),
                "labels": [LABELS[(k + j) % 3] for j in range(n)],
                "split": "train" if k < 40 else "validation" if k < 50 else "test",
                "patient_id": f"p{k // 2}",
                "box_format": "qwen3-vl",
            }
        )
    return annotated_images


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The images, each another one."""
    folder = tmp_path_factory.mktemp("images")
    for k, image in enumerate(clean_images()):
        greys = np.random.default_rng(k).integers(0, 256, (9, 7), dtype=np.uint8)
        Image.fromarray(greys).resize((image["width"], image["height"])).save(folder / image["file"])
    return folder


@pytest.fixture
def folder(images: Path, tmp_path: Path) -> Folder:
    """Writes images as a folder that `load_images` reads; their images are hard links."""

    def write(annotated_images: list[DrawnImage]) -> str:
        for image in clean_images():
            (tmp_path / image["file"]).hardlink_to(images / image["file"])
        lines = [json.dumps(image) if isinstance(image, dict) else image for image in annotated_images]
        (tmp_path / "annotations.jsonl").write_text("\n".join(lines) + "\n")
        return str(tmp_path)

    return write


def fit_of(images: list[tuple[list[list[float]], tuple[float, float]]], labels: int = 0) -> BoxFit:
    """How the boxes of images fit, each with its size."""
    boxes = np.array([box for drawn, _ in images for box in drawn], dtype=float)
    image = np.repeat(np.arange(len(images)), [len(drawn) for drawn, _ in images])
    return BoxFit(boxes, image, np.array([size for _, size in images], dtype=float), labels=labels)


def found(checkup: Checkup, *severities: str) -> list[str]:
    return [defect.name for defect in checkup.defects if defect.severity in (severities or SEVERITIES)]


def with_findings(annotated_images: list[DrawnImage]) -> list[DrawnImage]:
    return [image for image in annotated_images if image["boxes"]]


# What is planted, one function each; it changes the images in place and returns how many units it spoiled.


def as_xywh(annotated_images):
    for image in annotated_images:
        image["boxes"] = [[x1, y1, x2 - x1, y2 - y1] for x1, y1, x2, y2 in image["boxes"]]


def as_xywh_in_one_source(annotated_images):
    as_xywh(annotated_images[1::2])


def as_xywh_in_one_split(annotated_images):
    as_xywh([image for image in annotated_images if image["split"] == "train"])


def as_centres(annotated_images):
    for image in annotated_images:
        image["boxes"] = [[(x1 + x2) / 2, (y1 + y2) / 2, x2 - x1, y2 - y1] for x1, y1, x2, y2 in image["boxes"]]


def converted_twice(annotated_images):
    for image in annotated_images:
        image["boxes"] = [[x1, y1, x1 + x2, y1 + y2] for x1, y1, x2, y2 in image["boxes"]]


def exchanged_axes(annotated_images):
    for image in annotated_images:
        image["boxes"] = [[y1, x1, y2, x2] for x1, y1, x2, y2 in image["boxes"]]


def on_1024(annotated_images):
    for image in annotated_images:
        sx, sy = 1024 / image["width"], 1024 / image["height"]
        image["boxes"] = [[x1 * sx, y1 * sy, x2 * sx, y2 * sy] for x1, y1, x2, y2 in image["boxes"]]


def on_100(annotated_images):
    for image in annotated_images:
        sx, sy = 100 / image["width"], 100 / image["height"]
        image["boxes"] = [[x1 * sx, y1 * sy, x2 * sx, y2 * sy] for x1, y1, x2, y2 in image["boxes"]]


def normalised(annotated_images):
    for image in annotated_images:
        w, h = image["width"], image["height"]
        image["boxes"] = [[x1 / w, y1 / h, x2 / w, y2 / h] for x1, y1, x2, y2 in image["boxes"]]


def normalised_in_three(annotated_images):
    normalised(with_findings(annotated_images)[:3])


def swapped_x(annotated_images):
    for image in with_findings(annotated_images)[:5]:
        x1, y1, x2, y2 = image["boxes"][0]
        image["boxes"][0] = [x2, y1, x1, y2]


def not_a_number(annotated_images):
    with_findings(annotated_images)[0]["boxes"][0][2] = math.nan


def three_numbers(annotated_images):
    del with_findings(annotated_images)[0]["boxes"][0][3]


def a_line(annotated_images):
    box = with_findings(annotated_images)[0]["boxes"][0]
    box[2] = box[0]


def over_the_edge(annotated_images):
    for image in with_findings(annotated_images)[:4]:
        image["boxes"][0] = [image["width"] - 40, 10, image["width"] + 3, 60]


def far_away(annotated_images):
    image = with_findings(annotated_images)[3]
    image["boxes"][0] = [image["width"] + 10, 10, image["width"] + 50, 60]


def image_of_others(annotated_images):
    annotated_images[3]["file"] = "../image.png"
    return 1


def lost_image(annotated_images):
    annotated_images[3]["file"] = "gone.png"


def no_size(annotated_images):
    annotated_images[5]["width"] = None


def height_first(annotated_images):
    for image in annotated_images:
        image["width"], image["height"] = image["height"], image["width"]


def another_shape(annotated_images):
    annotated_images[9]["width"] *= 2


def same_box_twice(annotated_images):
    image = with_findings(annotated_images)[2]
    image["boxes"].append(image["boxes"][0])
    image["labels"].append(image["labels"][0])


def unmerged_readers(annotated_images):
    for image in with_findings(annotated_images)[:6]:
        x1, y1, x2, y2 = image["boxes"][0]
        image["boxes"].append([x1, y1, x2, y2 - 0.3])
        image["labels"].append(image["labels"][0])


def same_id(annotated_images):
    annotated_images[7]["id"] = annotated_images[6]["id"] = "image"


def same_image(annotated_images):
    annotated_images.insert(12, {**annotated_images[11], "id": "copy"})


def leaked_image(annotated_images):
    annotated_images.append({**annotated_images[11], "id": "copy", "split": "test"})


def patient_leaked_in_another_spelling(annotated_images):
    for image, spelling in ((annotated_images[3], "0003"), (annotated_images[45], 3)):
        image["patient_id"] = spelling
    return 1


def without_a_split(annotated_images):
    for image in annotated_images[1:20:2]:
        image["split"] = ""


def leaked_patient(annotated_images):
    annotated_images[45]["patient_id"] = "p3"


def too_few_labels(annotated_images):
    with_findings(annotated_images)[4]["labels"].pop()


def blank(annotated_images):
    with_findings(annotated_images)[4]["labels"][0] = " "


def another_case(annotated_images):
    for image in annotated_images[:20]:
        image["labels"] = [label.title() for label in image["labels"]]


def plural(annotated_images):
    with_findings(annotated_images)[0]["labels"][0] = "Pleural_effusions"


def typo(annotated_images):
    with_findings(annotated_images)[0]["labels"][0] = "cardiomegally"


def other_word(annotated_images):
    for image in annotated_images[::2]:
        image["labels"] = ["enlarged heart" if label == "cardiomegaly" else label for label in image["labels"]]


def no_negatives(annotated_images):
    annotated_images[:] = with_findings(annotated_images)


def hardly_a_finding(annotated_images):
    for image in annotated_images[2:]:
        image["boxes"], image["labels"] = [], []


def specks(annotated_images):
    for image in with_findings(annotated_images)[:5]:
        x1, y1, *_ = image["boxes"][0]
        image["boxes"][0] = [x1, y1, x1 + 3, y1 + 20]


def unknown_format(annotated_images):
    annotated_images[0]["box_format"] = "gpt-9"


def endless(annotated_images):
    image = with_findings(annotated_images)[0]
    image["boxes"] = [[5 * k, 5 * k, 5 * k + 40, 5 * k + 40] for k in range(40)]
    image["labels"] = ["lung nodule"] * 40


def not_json(annotated_images):
    annotated_images[4] = "{broken"  # type: ignore[call-overload]


PLANTED = [
    (as_xywh, "box-order"),
    (as_xywh_in_one_source, "box-order"),
    (as_xywh_in_one_split, "box-order"),
    (as_centres, "box-order"),
    (converted_twice, "box-order"),
    (exchanged_axes, "box-order"),
    (on_1024, "wrong-frame"),
    (on_100, "wrong-frame"),
    (normalised, "normalised-boxes"),
    (normalised_in_three, "normalised-boxes"),
    (swapped_x, "swapped-corners"),
    (not_a_number, "not-finite"),
    (three_numbers, "not-finite"),
    (a_line, "no-area"),
    (over_the_edge, "partly-off-image"),
    (far_away, "off-image"),
    (lost_image, "missing-image"),
    (image_of_others, "outside-image"),
    (no_size, "missing-size"),
    (height_first, "exchanged-size"),
    (another_shape, "image-size"),
    (same_box_twice, "duplicate-boxes"),
    (unmerged_readers, "near-duplicate-boxes"),
    (same_id, "repeated-id"),
    (same_image, "repeated-image"),
    (leaked_image, "image-leak"),
    (leaked_patient, "patient-leak"),
    (without_a_split, "split-names"),
    (patient_leaked_in_another_spelling, "patient-leak"),
    (too_few_labels, "label-count"),
    (blank, "blank-label"),
    (another_case, "label-spelling"),
    (plural, "label-spelling"),
    (typo, "label-spelling"),
    (other_word, "label-words"),
    (no_negatives, "negatives"),
    (hardly_a_finding, "negatives"),
    (specks, "small-boxes"),
    (unknown_format, "box-format"),
    (endless, "gold-length"),
    (not_json, "unreadable-row"),
]


def test_the_clean_set_passes(folder):
    checkup = examine(open_rows(folder(clean_images())))
    assert found(checkup) == []
    assert set(checkup.unchecked) == {"no-signal"}
    # Training writes the prompts of a folder that has none.
    assert any("60 of 60 rows have no prompt" in assumption for assumption in checkup.assumptions)
    assert checkup.metrics.images == {"train": 40, "validation": 10, "test": 10}
    assert checkup.metrics.negatives == IMAGES // 4


@pytest.mark.parametrize(("plant", "name"), PLANTED, ids=lambda value: getattr(value, "__name__", value))
def test_a_planted_defect_is_found_alone(folder, plant, name):
    annotated_images = clean_images()
    plant(annotated_images)
    checkup = examine(open_rows(folder(annotated_images)))
    assert found(checkup, "error", "warning") == [name]
    (defect,) = checkup.defects
    assert defect.fix
    assert defect.why
    assert len(defect.examples) <= 3
    if name != "negatives":
        assert defect.count > 0
        assert defect.examples


def test_counts_shares_and_examples_point_to_the_rows(folder):
    annotated_images = clean_images()
    over_the_edge(annotated_images)
    (defect,) = examine(open_rows(folder(annotated_images))).defects
    boxes = sum(len(image["boxes"]) for image in annotated_images)
    assert (defect.count, defect.of, defect.unit) == (4, boxes, "boxes")
    assert defect.share == 4 / boxes
    assert [(one.split, one.row, one.id) for one in defect.examples] == [
        ("train", 1, "001.png"),
        ("train", 2, "002.png"),
        ("train", 3, "003.png"),
    ]
    assert defect.examples[0].detail == "box 0 is [217, 10, 260, 60] on 257 x 332"


def test_a_default_box_names_the_rows_that_have_it(folder):
    annotated_images = with_findings(clean_images())
    for image in annotated_images:
        image |= {"boxes": [[5, 5, 30, 30]], "labels": ["mass"]}
    defects = examine(open_rows(folder(annotated_images))).defects
    (defect,) = [one for one in defects if one.name == "constant-box"]
    assert len({(one.split, one.row) for one in defect.rows}) == len(annotated_images)


@pytest.mark.parametrize(
    ("plant", "words"),
    [
        (as_xywh, "as x, y, width, height"),
        (as_centres, "as centre x, centre y"),
        (converted_twice, "as x1, y1, x1 + x2"),
        (exchanged_axes, "as y1, x1, y2, x2"),
        (on_1024, "a frame of 1024 x 1024"),
        (on_100, "a frame of 100 x 100"),
    ],
)
def test_the_mistake_that_all_boxes_share_is_named(folder, plant, words):
    annotated_images = clean_images()
    plant(annotated_images)
    assert words in examine(open_rows(folder(annotated_images))).defects[0].found


def test_only_the_split_with_the_mistake_is_blamed(folder):
    annotated_images = clean_images()
    as_xywh_in_one_split(annotated_images)
    (defect,) = examine(open_rows(folder(annotated_images))).defects
    assert {example.split for example in defect.examples} == {"train"}


@pytest.mark.parametrize(
    ("scale", "count"),
    [
        (0.5, IMAGES),
        # beyond the quarter
        (0.58, IMAGES),
        # 25 boxes may lie there by chance
        (0.5, 17),
    ],
)
def test_boxes_in_one_corner_that_fit_no_usual_size(folder, scale, count):
    annotated_images = clean_images()[:count]
    for image in annotated_images:
        image["boxes"] = [[scale * value for value in box] for box in image["boxes"]]
    (defect,) = examine(open_rows(folder(annotated_images))).defects
    assert (defect.name, defect.severity) == ("one-corner", "warning")


@pytest.mark.parametrize(
    ("labels", "certain"),
    [(LABELS, True), (("pacemaker",), False)],
)
def test_one_kind_of_finding_may_be_at_home_in_a_quarter(labels, certain):
    images = [([[300 + k, 20, 380 + k, 90 + k]], (600, 600)) for k in range(40)]
    diagnosis = fit_of(images, len(labels)).diagnose()
    assert (diagnosis.name, diagnosis.certain) == ("one-corner", certain)
    assert "upper right" in diagnosis.found


# Several readers, whose boxes are in columns of their own.


def by_readers(annotated_images: list[DrawnImage]) -> list[DrawnImage]:
    """Two readers who drew almost the same; `boxes` is empty, as under `any-of`."""
    for image in annotated_images:
        image["reader_boxes"] = [image["boxes"], [[x1, y1, x2 - 1, y2] for x1, y1, x2, y2 in image["boxes"]]]
        image["reader_labels"] = [image["labels"], list(image["labels"])]
        image["ignore_boxes"] = [[0, 0, 30, 20]]
        image["boxes"], image["labels"] = [], []
    return annotated_images


def test_sound_readers_pass_and_are_counted(folder):
    annotated_images = by_readers(clean_images())
    checkup = examine(open_rows(folder(annotated_images)))
    assert found(checkup) == []
    boxes = sum(len(one) for image in annotated_images for one in image["reader_boxes"])
    assert checkup.metrics.boxes == checkup.metrics.areas.sum() == sum(checkup.metrics.labels.values()) == boxes
    assert checkup.metrics.negatives == IMAGES // 4
    assert checkup.metrics.longest_gold > 0


def test_an_image_on_which_one_reader_drew_nothing_is_no_negative(folder):
    annotated_images = by_readers(clean_images())
    for image in annotated_images:
        image["reader_boxes"][0], image["reader_labels"][0] = [], []
    assert examine(open_rows(folder(annotated_images))).metrics.negatives == IMAGES // 4


def test_an_image_of_readers_is_not_shown_as_empty(folder):
    checkup = examine(open_rows(folder(by_readers(clean_images())[1:2])), thumbnails=32)
    assert len(checkup.sample[0].boxes) == 2 * 2 + 1
    assert checkup.sample[0].labels[0].startswith("reader 0: ")


@pytest.mark.parametrize(
    ("box", "name"),
    [
        ([math.nan, 0, 9, 9], "not-finite"),
        ([30, 30, 20, 60], "swapped-corners"),
        ([30, 30, 30, 60], "no-area"),
        ([900, 30, 950, 60], "off-image"),
        ([200, 30, 950, 60], "partly-off-image"),
        ([0.1, 0.1, 0.5, 0.5], "normalised-boxes"),
    ],
)
@pytest.mark.parametrize("column", ["boxes", "reader 1", "ignore_boxes"])
def test_a_bad_box_of_any_column_is_found(folder, box, name, column):
    annotated_images = by_readers(clean_images())
    image = annotated_images[1]
    if column == "reader 1":
        image["reader_boxes"][1][0] = box
    elif column == "boxes":
        image["boxes"], image["labels"] = [box], ["lung nodule"]
    else:
        image["ignore_boxes"].append(box)
    (defect,) = examine(open_rows(folder(annotated_images))).defects
    assert (defect.name, defect.count) == (name, 1)
    assert defect.examples[0].detail.startswith("box 0" if column == "boxes" else f"{column}: box ")
    assert list(row_problems(image)) or name == "normalised-boxes"


@pytest.mark.parametrize(("plant", "name"), [(as_xywh, "box-order"), (on_1024, "wrong-frame")])
def test_the_reader_who_drew_otherwise_is_named(folder, plant, name):
    annotated_images = by_readers(clean_images())
    second = [{**image, "boxes": image["reader_boxes"][1]} for image in annotated_images]
    plant(second)
    for image, drawn in zip(annotated_images, second, strict=True):
        image["reader_boxes"][1] = drawn["boxes"]
    # Some 25 boxes of a split are enough to tell an order, a frame needs 20.
    for image in annotated_images:
        image["split"] = "train"
    (defect,) = examine(open_rows(folder(annotated_images))).defects
    assert defect.name == name
    assert defect.found.startswith("train, reader 1: ")
    assert all("reader 1: " in example.detail for example in defect.examples)


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"reader_labels": [["mass"]]}, "label-count"),
        ({"reader_labels": [["mass"], []]}, "label-count"),
        ({"reader_labels": [["mass"], None]}, "label-count"),
        ({"reader_labels": [["mass"], [" "]]}, "blank-label"),
        ({"reader_boxes": None}, "label-count"),
        ({"reader_boxes": []}, "unreadable-row"),
        ({"reader_boxes": "none"}, "unreadable-row"),
        ({"reader_boxes": [None]}, "unreadable-row"),
        ({"ignore_boxes": 3}, "unreadable-row"),
    ],
)
def test_columns_of_readers_that_do_not_fit(folder, change, name):
    image = clean_images()[4]
    boxes = [[20, 20, 90, 90]]
    image |= {"boxes": [], "labels": [], "reader_boxes": [boxes, boxes], "reader_labels": [["mass"], ["mass"]]}
    (defect,) = examine(open_rows(folder([image | change]))).defects
    assert (defect.name, defect.count) == (name, 1)


# Sizes of the image's shape, and not of its size.


@pytest.mark.parametrize(
    ("manifest", "words"),
    [
        ({"complete": False}, "not completed"),
        ({"complete": True, "splits": {"train": {"shards": [{"file": "train-9.parquet"}]}}}, "1 of 1 shards"),
        ("{", "cannot be read"),
        ({"complete": True, "splits": {}}, ""),
        # of another program
        ({"version": 3}, ""),
    ],
)
@pytest.mark.parametrize("has_shards", [True, False])
def test_an_unfinished_folder_is_an_error(images, tmp_path, manifest, words, has_shards):
    text = manifest if isinstance(manifest, str) else json.dumps(manifest)
    root = as_parquet(prompted(clean_images(), images), tmp_path) if has_shards else str(tmp_path)
    (Path(root) / "manifest.json").write_text(text)
    if not words and not has_shards:
        with pytest.raises(ValueError, match="without any"):
            open_rows(root)
        return
    checkup = examine(open_rows(root))
    assert found(checkup, "error") == (["unfinished-folder"] if words else [])
    assert not words or words in checkup.defects[0].found


# Near misses: nothing is wrong with these.


def touching_the_edge(annotated_images):
    for k, image in enumerate(with_findings(annotated_images)):
        image["boxes"][0] = [0, 0, 60 + 2 * k, 70 + k]
        image["boxes"][-1] = [
            image["width"] - 60.0 - k,
            image["height"] - 70.0 - 2 * k,
            image["width"],
            image["height"],
        ]


def whole_image(annotated_images):
    for image in with_findings(annotated_images)[:4]:
        image["boxes"], image["labels"] = [[0, 0, image["width"], image["height"]]], ["cardiomegaly"]


def small_nodules(annotated_images):
    for k, image in enumerate(with_findings(annotated_images)):
        x1, y1, *_ = image["boxes"][0]
        image["boxes"][0] = [x1, y1, x1 + 6 + k % 4, y1 + 7 + k % 5]


def two_findings_in_one_place(annotated_images):
    for image in with_findings(annotated_images):
        image["boxes"], image["labels"] = [image["boxes"][0]] * 2, ["pleural effusion", "lung nodule"]


def overlapping_twins(annotated_images):
    # IoU 0.9: two findings, or one drawn twice, which cannot be told from a few images
    for image in with_findings(annotated_images)[:4]:
        x1, y1, x2, y2 = image["boxes"][0]
        image["boxes"], image["labels"] = [[x1, y1, x2, y2], [x1, y1, x2, y1 + 0.9 * (y2 - y1)]], ["lung nodule"] * 2


def sides_of_one_finding(annotated_images):
    for image in annotated_images:
        image["labels"] = [f"{side} lung" for side, _ in zip(("left", "right", "left"), image["labels"], strict=False)]


def findings_that_sound_alike(annotated_images):
    words = ("hyperinflation", "hypoinflation", "pneumothorax", "hemothorax", "rib 1", "rib 2")
    for k, image in enumerate(annotated_images):
        image["labels"] = [words[k % 2] if k % 9 == 0 else words[2 + k % 4] for _ in image["labels"]]


def smaller_copies(annotated_images):
    # The boxes and sizes are of the original, the image is a third of it.
    for image in annotated_images:
        image["boxes"] = [[3 * value for value in box] for box in image["boxes"]]
        image["width"], image["height"] = 3 * image["width"] + 1, 3 * image["height"] - 1


def ids_that_start_anew(annotated_images):
    numbers: dict[str, int] = {}
    for image in annotated_images:
        image["id"] = str(numbers.setdefault(image["split"], 0))
        numbers[image["split"]] += 1


def one_split(annotated_images):
    for image in annotated_images:
        image["split"] = "train"


def without_patients(annotated_images):
    for image in annotated_images:
        del image["patient_id"]


@pytest.mark.parametrize(
    "change",
    [
        touching_the_edge,
        whole_image,
        small_nodules,
        two_findings_in_one_place,
        overlapping_twins,
        sides_of_one_finding,
        findings_that_sound_alike,
        smaller_copies,
        ids_that_start_anew,
        one_split,
        without_patients,
    ],
)
def test_a_near_miss_passes(folder, change):
    annotated_images = clean_images()
    change(annotated_images)
    assert found(examine(open_rows(folder(annotated_images)))) == []


def test_two_images_of_one_size_are_two_images(folder, images, tmp_path):
    annotated_images = clean_images()
    annotated_images[1] = {**annotated_images[0], "file": "other.png"}
    root = folder(annotated_images)
    Image.linear_gradient("L").resize((annotated_images[0]["width"], annotated_images[0]["height"])).save(
        tmp_path / "other.png"
    )
    assert found(examine(open_rows(root))) == []


def test_real_images_have_no_error(shared_dir):
    checkup = examine(open_rows(str(shared_dir / "data" / "cxr_lungs")), QWEN3)
    # Both lungs are on every image.
    assert found(checkup) == ["negatives"]
    assert checkup.count("error") == 0
    assert checkup.metrics.boxes == 630


# Rows with prompts, as `prepare` and `save_to_disk` write them.


def prompted(annotated_images: list[DrawnImage], images: Path) -> list[dict]:
    return [
        {
            **{key: value for key, value in image.items() if key != "file"},
            "id": image["file"],
            "prompt": prompts.prompt_messages(LABELS),
            "image": {"bytes": (images / image["file"]).read_bytes(), "path": None},
        }
        for image in annotated_images
    ]


def as_parquet(rows: list[dict], folder: Path) -> str:
    import pyarrow as pa
    import pyarrow.parquet as pq

    (folder / "data").mkdir()
    for split in dict.fromkeys(row["split"] for row in rows):
        mine = [row for row in rows if row["split"] == split]
        for number, part in enumerate((mine[:7], mine[7:])):
            pq.write_table(pa.Table.from_pylist(part), folder / "data" / f"{split}-{number:05}.parquet")
    return str(folder)


def as_saved(rows: list[dict], folder: Path) -> str:
    from datasets import Dataset, DatasetDict
    from datasets import Image as ImageColumn

    parts = {
        split: Dataset.from_list([row for row in rows if row["split"] == split]).cast_column("image", ImageColumn())
        for split in dict.fromkeys(row["split"] for row in rows)
    }
    DatasetDict(parts).save_to_disk(folder)
    return str(folder)


@pytest.mark.parametrize("write", [as_parquet, as_saved])
def test_parquet_shards_and_saved_datasets_are_read_alike(images, tmp_path, write):
    annotated_images = clean_images()
    over_the_edge(annotated_images)
    leaked_patient(annotated_images)
    checkup = examine(open_rows(write(prompted(annotated_images, images), tmp_path)))
    assert found(checkup) == ["partly-off-image", "patient-leak"]
    assert set(checkup.unchecked) == {"no-signal"}
    assert checkup.defects[0].examples[2].row == 3
    assert checkup.defects[1].examples[0].detail == "patient p3 is also in train"


def test_a_shard_that_is_cut_or_missing_is_named(images, tmp_path):
    root = as_parquet(prompted(clean_images(), images), tmp_path)
    file = tmp_path / "data" / "train-00001.parquet"
    whole = file.read_bytes()
    for broken in (whole[: len(whole) // 2], whole[:4000] + bytes(len(whole) - 8000) + whole[-4000:]):
        file.write_bytes(broken)
        with pytest.raises(ValueError, match=r"whole parquet file.* got .*train-00001\.parquet"):
            examine(open_rows(root))
    file.write_bytes(whole)
    (tmp_path / "data" / "test-00000.parquet").unlink()
    (defect,) = examine(open_rows(root)).defects
    assert (defect.name, defect.found) == (
        "unfinished-folder",
        "1 of 2 shards are missing beside test-00001.parquet, the first is number 0.",
    )


def test_splits_can_be_chosen(images, tmp_path):
    annotated_images = clean_images()
    over_the_edge(annotated_images)
    root = as_parquet(prompted(annotated_images, images), tmp_path)
    assert examine(open_rows(root, ["test"])).metrics.images == {"test": 10}
    with pytest.raises(ValueError, match=r"Expected one of .*train.* for the split"):
        open_rows(root, ["dev"])


@pytest.mark.parametrize(
    ("prompt", "name"),
    [
        (" ", "prompt-missing"),
        ([{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": " "}]}], "prompt-missing"),
        ([{"role": "user", "content": "Give each box as [x, y, w, h]."}], "prompt-format"),
        ([{"role": "user", "content": "Give each box in numbers from 0 to 1."}], "prompt-format"),
    ],
)
def test_prompts_are_looked_at(images, tmp_path, prompt, name):
    rows = prompted(clean_images(), images)
    for row in rows:
        row["prompt"] = prompt
    (defect,) = examine(open_rows(as_parquet(rows, tmp_path))).defects
    assert (defect.name, defect.count) == (name, IMAGES)


def test_several_questions_about_an_image_are_no_repetition(images, tmp_path):
    rows = prompted(clean_images(), images)
    asked = [{**row, "prompt": prompts.prompt_messages(LABELS[:1]), "id": f"{row['id']}#2"} for row in rows]
    assert found(examine(open_rows(as_parquet(rows + asked, tmp_path)))) == []


CLAIMS = [
    # prompt, format, contradicts
    ("Report the boxes in JSON format.", "qwen3-vl", False),
    ("Report the boxes in JSON format.", "paligemma", True),
    ("as [x1, y1, x2, y2]", "qwen3-vl", False),
    ("as [x1, y1, x2, y2]", "gemini", True),
    ("as [ymin, xmin, ymax, xmax]", "gemini", False),
    ("as [y_min, x_min, y_max, x_max]", "qwen3-vl", True),
    ("numbers from 0 to 1000", "qwen3-vl", False),
    ("numbers from 0 to 1000", "qwen2.5-vl", True),
    ("in pixels of the image", "qwen2.5-vl", False),
    ("absolute pixel coordinates", "qwen3-vl", True),
    ("coordinates between 0 and 1", "answer-list", False),
    ("coordinates between 0 and 100", "chexagent", False),
    ("Pixel-sized nodules count; confidence 0 to 10.", "qwen3-vl", False),
    ("Find the nodule.", "qwen3-vl", False),
    # explains one by the other
    ("not in pixels but in numbers from 0 to 1000", "qwen3-vl", False),
]


@pytest.mark.parametrize(("prompt", "box_format", "contradicts"), CLAIMS)
def test_what_a_prompt_claims(prompt, box_format, contradicts):
    assert bool(list(prompt_contradictions(prompt, get_box_format(box_format)))) == contradicts


def test_the_templates_contradict_no_format():
    for name in list_box_formats():
        fmt = get_box_format(name)
        for wording in range(prompts.wordings("detection")):
            messages = prompts.task_prompt("detection", ("mass",), fmt, wording=wording)
            text = " ".join(part.get("text") or "" for message in messages for part in message["content"])
            assert list(prompt_contradictions(text, fmt)) == [], name


def test_a_coarse_format_loses_small_boxes(folder):
    annotated_images = clean_images()
    for image in with_findings(annotated_images)[:4]:
        image["boxes"], image["labels"] = [[100, 100, 100.2, 130]], ["lung nodule"]
    checkup = examine(open_rows(folder(annotated_images)), Model(get_box_format("chexagent")))
    assert found(checkup, "error") == ["gold-reward"]
    assert checkup.defects[0].count == 4


def test_the_limit_on_the_answer_is_the_one_given(folder):
    annotated_images = clean_images()
    endless(annotated_images)
    root = folder(annotated_images)
    assert found(examine(open_rows(root), Model(max_completion_length=4096))) == []
    (defect,) = examine(open_rows(root)).defects
    # A guess at the number of tokens is no proof.
    assert (defect.severity, defect.count) == ("warning", 1)


class _Words:
    """Counts words for tokens."""

    def __call__(self, text: str, **_: object) -> dict[str, list[str]]:
        return {"input_ids": text.split()}


class Qwen2VLImageProcessor:
    """What `resized_size` asks of a processor."""

    size = {"shortest_edge": 56 * 56, "longest_edge": 36 * 28 * 28}  # noqa: RUF012
    patch_size, merge_size, do_resize = 14, 2, True

    def __init__(self) -> None:
        self.image_processor = self
        self.tokenizer = _Words()


def test_the_model_s_processor_decides_sizes_and_tokens(folder):
    annotated_images = clean_images()
    for image in with_findings(annotated_images)[:2]:
        image["boxes"], image["labels"] = [[30, 30, 36, 50]], ["lung nodule"]
    root = folder([{**image, "prompt": "Where is a finding?"} for image in annotated_images])
    checkup = examine(open_rows(root), Model(processor=Qwen2VLImageProcessor(), max_completion_length=6))
    assert checkup.assumptions == ()
    length, small = checkup.defects
    assert (length.name, length.severity) == ("gold-length", "error")
    # 6 pixels of 257 are less than 4 of 140
    assert (small.name, small.count) == ("small-boxes", 2)
    assert "of 140 x 168" in small.examples[0].detail


def test_columns_with_the_resized_size_come_first(folder):
    annotated_images = clean_images()
    for image in annotated_images:
        image["resized_width"], image["resized_height"] = 28, 28
    checkup = examine(open_rows(folder(annotated_images)))
    assert "small-boxes" in found(checkup)
    assert not any("pixels" in one for one in checkup.assumptions)


def test_metrics_count_every_sound_box(folder):
    annotated_images = clean_images()
    metrics = examine(open_rows(folder(annotated_images))).metrics
    boxes = sum(len(image["boxes"]) for image in annotated_images)
    assert metrics.boxes == metrics.areas.sum() == metrics.aspects.sum() == metrics.sides.sum() == boxes
    assert metrics.centres[None].sum() == boxes
    assert sum(metrics.centres[label].sum() for label in LABELS) == boxes
    assert sum(metrics.per_image.values()) == IMAGES


def test_the_defects_are_plain_json_without_images(folder):
    annotated_images = clean_images()
    over_the_edge(annotated_images)
    checkup = examine(open_rows(folder(annotated_images)), thumbnails=64)
    assert checkup.defects[0].examples[0].image is not None
    written = json.loads(json.dumps(checkup.to_dict(), allow_nan=False))
    assert written["errors"] == 1
    assert written["defects"][0]["examples"][0] == {
        "split": "train",
        "row": 1,
        "id": "001.png",
        "detail": "box 0 is [217, 10, 260, 60] on 257 x 332",
    }


@given(
    st.lists(st.one_of(st.floats(), st.integers(-50, 150), st.none(), st.text(max_size=3)), max_size=5),
    st.booleans(),
)
def test_a_box_has_a_defect_where_training_refuses_it(box, is_list):
    """The doctor and the check before training agree on which boxes are bad, but for boxes within one pixel."""
    box = box if is_list else tuple(box)
    defect = box_defect(box, (100, 80))
    refused = any("box 0" in problem for problem in row_problems({"boxes": [box], "width": 100, "height": 80}))
    assert (defect is not None) == refused or defect == "normalised-boxes"


@given(st.lists(st.integers(0, 400), min_size=40, max_size=120))
def test_sound_boxes_over_the_whole_image_share_no_mistake(values):
    images = [
        ([[value, k, value + 60, k + 80], [500 - 60, 600 - 80, 500, 600]], (500, 600)) for k, value in enumerate(values)
    ]
    assert fit_of(images).diagnose() is None


@pytest.mark.parametrize(
    ("counts", "groups"),
    [
        ({"Mass": 5, "mass": 5}, [{"Mass", "mass"}]),
        (
            {"lung opacity": 9, "Lung Opacities": 1, "lung-opacity": 2},
            [{"lung opacity", "Lung Opacities", "lung-opacity"}],
        ),
        ({"atelectasis": 50, "atelectais": 2}, [{"atelectasis", "atelectais"}]),
        ({"emphysema": 50, "emphysema ": 2}, [{"emphysema", "emphysema "}]),
        # three that a column of ten letters cut
        (
            {name[:end]: end for name in ("cardiomegaly", "infiltration", "pneumothorax") for end in (40, 10)},
            [{name, name[:10]} for name in ("cardiomegaly", "infiltration", "pneumothorax")],
        ),
        # as frequent as the other: no slip
        ({"zone alpha1": 50, "zone alpha2": 1}, []),
        ({"left lung": 10, "right lung": 1}, []),
        ({"hyperinflation": 90, "hypoinflation": 1}, []),
        ({"pneumothorax": 90, "hemothorax": 1}, []),
        ({"pneumothorax": 90, "pneumomediastinum": 1}, []),
        ({"upper rib fracture": 90, "lower rib fracture": 1}, []),
        ({"fibrosis": 3, "cardiomegaly": 4}, []),
        ({"effusion": 3, "pleural effusion": 4}, [{"effusion", "pleural effusion"}]),
        ({"effusion": 3, "small effusion": 4}, []),
    ],
)
def test_label_variants(counts, groups):
    assert [set(group.labels) for group in label_variants(counts)] == groups


def test_every_check_says_what_to_do():
    # The fix of these depends on what is found.
    depends = {"shifted-rows", "box-order", "flipped-boxes", "wrong-frame", "one-corner"}
    assert {name for name, check in CHECKS.items() if not check.fix} == depends
    assert all(check.severity in SEVERITIES and check.why for check in CHECKS.values())
    planted = {name for _, name in PLANTED}
    # Tested on their own.
    assert set(CHECKS) - planted == {
        "prompt-missing",
        "prompt-format",
        "gold-reward",
        "one-corner",
        "unfinished-folder",
        "answer-column",
        "column-values",
        "no-patient",
        "parent-label",
        "label-contradiction",
        # In test_box_content.py.
        "flipped-boxes",
        "foreign-boxes",
        # In test_image_checks.py.
        "clipped-image",
        "shortcut",
        "patient-name-leak",
        "broken-image",
        "colour-image",
        "one-grey",
        "drawn-boxes",
        "burned-in",
        "inverted-image",
        "turned-image",
        "odd-image",
        "blank-box",
        "odd-quality",
        "mirrored-image",
        "grey-shift",
        "image-copy",
        "copy-leak",
        # Another command looks for it.
        "no-signal",
        # In test_planted_defects.py.
        "answer-in-prompt",
        "coarse-boxes",
        "constant-box",
        "count-in-prompt",
        "cut-boxes",
        "empty-reader",
        "hedged-label",
        "joined-labels",
        "pile-up",
        "related-boxes",
        "prompt-marks",
        "several-formats",
        "side-label",
        "study-leak",
        "giant-boxes",
        "label-letters",
        "label-marks",
        "label-number",
        "one-label",
        "one-patient",
        "prompt-contradiction",
        "shared-box",
        "shifted-rows",
        "box-shift",
        "copied-reader",
        "id-in-prompt",
        "without-findings",
        "without-label",
        "exchanged-labels",
        "lopsided-split",
        "moved-boxes",
        "odd-size",
        "prompt-shift",
        "rounded-id",
        "ignored-image",
        "label-not-in-train",
        "negative-placeholder",
        "null-label",
        "patient-column",
        "patient-facts",
        "patient-spelling",
        "without-negatives",
        "unboxed-label",
        "unmerged-readers",
    }


def test_the_table_of_checks_says_the_numbers_that_the_code_has():
    from grounding_rewards.doctor import answer_checks, box_checks, case

    specks = f"below {answer_checks.LEAST_SIDE:g} pixels of what the model sees, or {answer_checks.LEAST_SHARE:g} of"
    assert specks in CHECKS["small-boxes"].title
    assert f"{case.WHOLE_IMAGE:.0%}" in CHECKS["ignored-image"].title
    assert f"above {box_checks._NEAR_DUPLICATE} are" in CHECKS["near-duplicate-boxes"].why
    assert box_checks._TO_PIXELS in CHECKS["normalised-boxes"].fix
