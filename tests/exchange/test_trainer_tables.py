"""Tables of other trainers: read back as their loaders read them, each row scored by our adapter for its own answer.

Sizes as the trainers resize are compared with what their sources do to an image, written down again with PIL.
"""

import io
import json
import math
import re
import shlex
from pathlib import Path

import numpy as np
import pytest
from datasets import Dataset, load_dataset
from datasets import Image as ImageColumn
from hypothesis import assume, given
from hypothesis import strategies as st
from PIL import Image
from transformers import Qwen2VLImageProcessorPil

from grounding_rewards.data.prompts import gold_answer
from grounding_rewards.exchange.trainer_tables import (
    DEFAULT_LIMITS,
    TABLES,
    PixelLimits,
    easyr1_size,
    marked_messages,
    one_problem,
    qwen_vl_utils_size,
    trainer_limits,
    trainer_size,
    write_trainer_table,
)
from grounding_rewards.images.image_column import with_image_column
from grounding_rewards.integrations import easyr1, verl
from grounding_rewards.integrations.plugin_files import plugin
from grounding_rewards.prepare.load import load_split
from grounding_rewards.rewards.grounding import get_reward

pytestmark = pytest.mark.training


def processor():
    return Qwen2VLImageProcessorPil(min_pixels=56 * 56, max_pixels=256 * 28 * 28)


def images(**columns):
    """Three images: two boxes, none, one box beside an ignored region; the first of 16 bits, the last turned by
    EXIF."""
    deep = Image.fromarray(np.linspace(0, 4000, 120 * 90, dtype=np.uint16).reshape(90, 120))
    turned = io.BytesIO()
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.new("L", (90, 120)).save(turned, "JPEG", exif=exif)
    rows = {
        "image": [deep, Image.new("L", (120, 90), 99), {"bytes": turned.getvalue(), "path": None}],
        "boxes": [[[10.5, 20, 60, 70], [70, 5, 110, 40]], [], [[30, 30, 90, 80]]],
        "labels": [["mass", "mässig"], [], ["effusion"]],
        "ignore_boxes": [[], [], [[0, 0, 20, 20]]],
        "width": [120] * 3,
        "height": [90] * 3,
        "id": ["a", "b", "c"],
    }
    return with_image_column(Dataset.from_dict(rows | columns).cast_column("image", ImageColumn()))


def write(dataset, trainer, out, **settings):
    given = {"split": "train", "source": "images", "box_format": "qwen3-vl"} | settings
    return write_trainer_table(dataset, trainer, Path(out), **given)


def read(path):
    """As all four trainers do."""
    kind = "parquet" if path.suffix == ".parquet" else "json"
    return load_dataset(kind, data_files=str(path), cache_dir=str(path.parent / "cache"))["train"].to_list()


def truth_of(trainer, row):
    place = {"verl": lambda: row["reward_model"]["ground_truth"], "easyr1": lambda: row["answer"]}
    return place.get(trainer, lambda: row["label"] if trainer == "openrlhf" else row["ground_truth"])()


def picture_of(trainer, row):
    """The image of a row, opened as each of these trainers does: whatever it is, it is converted to RGB."""
    (image,) = row["images"]
    if isinstance(image, dict):
        image = io.BytesIO(image["bytes"]) if image.get("bytes") else image["image"]
    return Image.open(image).convert("RGB")


def score(trainer, answer, truth):
    """By the adapter of a trainer; of ms-swift and OpenRLHF the adapters need the trainer, so the reward by itself."""
    if trainer == "verl":
        return verl.compute_score("images", answer, truth, {}, reward="R3")["score"]
    if trainer == "easyr1":
        return easyr1.compute_score([{"response": answer, "ground_truth": truth}], reward="R3")[0]["overall"]
    return get_reward("R3")([answer], ground_truth=[truth])[0]


def gold_rewards(trainer, rows):
    for row in rows:
        packed = truth_of(trainer, row)
        truth = json.loads(packed)
        full = 1.0 if truth["boxes"] else 0.2  # the bonus of a no-finding statement
        yield score(trainer, gold_answer(truth, truth["box_format"]), packed), full


@pytest.mark.parametrize("trainer", TABLES)
def test_every_row_earns_the_full_reward_for_its_own_answer(trainer, tmp_path):
    written = write(images(), trainer, tmp_path, processor=processor(), box_format="qwen2.5-vl")
    rows = read(written["path"])
    assert (written["rows"], written["negatives"], len(rows)) == (3, 1, 3)
    for got, full in gold_rewards(trainer, rows):
        # What rounding to whole pixels leaves of a box.
        assert got == pytest.approx(full, abs=0.05)


@pytest.mark.parametrize("trainer", TABLES)
def test_real_images_stay_where_they_are(trainer, tmp_path, shared_dir):
    dataset = load_split(str(shared_dir / "data/cxr_lungs"), "train", max_images=12)
    written = write(dataset, trainer, tmp_path, processor=processor(), box_format="qwen2.5-vl")
    rows = read(written["path"])
    assert (written["images"], (tmp_path / "images").exists()) == (0, False)
    for row, own in zip(rows, dataset, strict=True):
        assert picture_of(trainer, row).size == own["image"].size
    for got, full in gold_rewards(trainer, rows):
        assert got == pytest.approx(full, abs=0.05)


@pytest.mark.parametrize("trainer", TABLES)
def test_sizes_are_those_of_the_trainer(trainer, tmp_path):
    limits = PixelLimits() if trainer == "openrlhf" else PixelLimits(least=40_000, most=90_000)
    # A dataset that was prepared for TRL has sizes already.
    stale = images(resized_width=[1] * 3, resized_height=[1] * 3)
    written = write(stale, trainer, tmp_path, processor=processor(), limits=limits)
    truth = json.loads(truth_of(trainer, read(written["path"])[0]))
    expected = trainer_size(trainer, processor(), 120, 90, limits)
    assert (truth["resized_width"], truth["resized_height"]) == expected
    assert expected != trainer_size("openrlhf", processor(), 120, 90) or trainer == "openrlhf"
    # Without a processor nobody knows them, and a format of its own frame needs none.
    bare = json.loads(truth_of(trainer, read(write(stale, trainer, tmp_path / "bare")["path"])[0]))
    assert "resized_width" not in bare
    assert (bare["width"], bare["height"]) == (120, 90)


@pytest.mark.parametrize("trainer", TABLES)
def test_trainers_see_what_the_package_sees(trainer, tmp_path):
    """Images of 16 bits and turned ones get a file of their own; `convert("RGB")` alone would spoil both."""
    dataset = images()
    written = write(dataset, trainer, tmp_path)
    assert written["images"] == 3  # none of them is a file
    for row, own in zip(read(written["path"]), dataset, strict=True):
        assert np.array_equal(np.asarray(picture_of(trainer, row)), np.asarray(own["image"].convert("RGB")))


def test_the_layouts(tmp_path):
    """Every column by hand; where a trainer looks for it stands in docs/trainers.md."""
    asked = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Where?"}]
    dataset = images(prompt=[asked] * 3, source=["one", "one", "two"])
    rows = {
        trainer: read(write(dataset, trainer, tmp_path / trainer, limits=limits)["path"])[2]
        for trainer, limits in zip(TABLES, [PixelLimits(most=90_000), *[PixelLimits()] * 3], strict=True)
    }
    turns = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "<image>Where?"}]
    truth = {"boxes": [[30, 30, 90, 80]], "labels": ["effusion"], "ignore_boxes": [[0, 0, 20, 20]], "id": "c"}
    truth |= {"width": 120, "height": 90, "box_format": "qwen3-vl"}
    for trainer, row in rows.items():
        assert json.loads(truth_of(trainer, row)) == truth
    (image,) = rows["verl"].pop("images")
    assert image["max_pixels"] == 90_000
    assert "min_pixels" not in image
    assert Path(image["image"]).is_absolute()
    del rows["verl"]["reward_model"]["ground_truth"]
    assert rows["verl"].pop("extra_info") == {"split": "train", "index": 2, "id": "c"}
    said = {"data_source": "two", "ability": "grounding", "reward_model": {"style": "rule"}}
    assert rows["verl"] == {**said, "prompt": turns}
    assert rows["easyr1"].keys() == {"problem", "answer", "images"}
    assert rows["easyr1"]["problem"] == "Be brief.\n\n<image>Where?"
    assert rows["ms-swift"].keys() == {"messages", "images", "ground_truth", "solution"}
    # the reward reads the first, the log keeps the second
    assert rows["ms-swift"]["ground_truth"] == rows["ms-swift"]["solution"]
    assert rows["ms-swift"]["messages"] == turns
    assert rows["openrlhf"].keys() == {"prompt", "label", "images", "datasource"}
    assert (rows["openrlhf"]["prompt"], rows["openrlhf"]["datasource"]) == (turns, "two")


def test_readers_and_declared_formats(tmp_path):
    """Boxes of several readers, and a format that the user declared, travel in the ground truth."""
    declared = json.dumps({"syntax": "json", "keys": ["region"], "order": "yxyx", "space": "norm1000"})
    by_readers = [[[[10, 20, 60, 70]], []], [[], []], [[[30, 30, 90, 80]], [[30, 30, 90, 80]]]]
    labels = [[["mass"], []], [[], []], [["effusion"], ["effusion"]]]
    dataset = images(reader_boxes=by_readers, reader_labels=labels)
    written = write(dataset, "verl", tmp_path, box_format=declared)
    assert written["negatives"] == 1
    truth = json.loads(read(written["path"])[0]["reward_model"]["ground_truth"])
    assert truth["reader_boxes"] == by_readers[0]
    assert truth["box_format"] == declared
    packed = json.dumps(truth)
    assert verl.compute_score("images", "[]", packed, {}, reward="R3")["score"] == 0.2  # the second reader's answer
    # Readers' boxes need no others beside them.
    alone = images(reader_boxes=by_readers, reader_labels=labels, boxes=[None] * 3, labels=[None] * 3)
    packed = read(write(alone, "verl", tmp_path / "alone")["path"])[0]["reward_model"]["ground_truth"]
    assert verl.compute_score("images", "[]", packed, {}, reward="R3")["score"] == 0.2


MARKS = [
    # prompt, what is said of it
    ("What is <image>?", "contain <image>"),
    ("Play <video>", "contain <video>"),
    ([{"role": "user", "content": [{"type": "image"}, {"type": "image"}, {"type": "text", "text": "?"}]}], "2 images"),
]


@pytest.mark.parametrize(("prompt", "said"), MARKS)
def test_prompts_that_trainers_would_misread(prompt, said):
    with pytest.raises(ValueError, match=said):
        marked_messages(prompt)


def test_easyr1_makes_one_turn():
    with pytest.raises(ValueError, match="turns user, assistant, user"):
        one_problem([{"role": role, "content": "x"} for role in ("user", "assistant", "user")])


def test_refusals(tmp_path):
    dataset = images()
    with pytest.raises(ValueError, match=r"Expected --model .* qwen2.5-vl, .* got none"):
        write(dataset, "verl", tmp_path, box_format="qwen2.5-vl")
    with pytest.raises(ValueError, match="Expected --box-format"):
        write(dataset, "verl", tmp_path, box_format=None)
    with pytest.raises(ValueError, match="Expected a column image"):
        write(dataset.remove_columns("image"), "verl", tmp_path)
    with pytest.raises(ValueError, match=r"row 1 \(id b\): .*contain <image>"):
        write(images(prompt=["Where?", "<image>", "Where?"]), "verl", tmp_path)
    assert not list(tmp_path.iterdir())
    write(dataset, "verl", tmp_path)
    with pytest.raises(ValueError, match="Expected a new or empty place for --out, got the file"):
        write(dataset, "verl", tmp_path)
    write(dataset, "verl", tmp_path, split="test")  # another split may stand beside it


def test_bad_rows_are_dropped_where_that_is_asked(tmp_path):
    dataset = images(prompt=["Where?", "<image>", "Where?"])
    with pytest.warns(UserWarning, match="1 of 3"):
        written = write(dataset, "verl", tmp_path, bad_rows="drop")
    assert [json.loads(row["reward_model"]["ground_truth"])["id"] for row in read(written["path"])] == ["a", "c"]


@pytest.mark.parametrize("trainer", TABLES)
def test_the_lines_of_a_reward_and_those_of_a_table_agree(trainer, tmp_path):
    """Once `plugin` and the page named a column that no table has."""
    lines = write(images(), trainer, tmp_path / "my tables")["lines"]
    # A shell takes each line as one setting, also of a folder with a space in its name.
    assert all(len(shlex.split(line)) <= 2 for line in lines)
    with_table = settings_of(lines)
    path = None if trainer == "verl" else tmp_path / "boxes.py"
    with_reward = settings_of(plugin(trainer, "R4", {}, path).lines.splitlines())
    both = with_reward.keys() & with_table.keys()
    assert [with_reward[key] for key in both] == [with_table[key] for key in both]
    recipes = (Path(__file__).parents[2] / "docs" / "trainers.md").read_text(encoding="utf-8")
    for key in ("answer_key", "label_key"):
        named = [value for found, value in with_table.items() if found.endswith(key)]
        assert not named or set(re.findall(rf"{key}[: =]+(\w+)", recipes)) == set(named)


def settings_of(lines):
    return dict(re.split("[ =]", line, maxsplit=1) for line in lines if re.match(r"(--)?[\w.]+[ =]", line))


def resized_by_easyr1(image, limits):
    """What EasyR1 at 46c6c21 does, in its order: shrink, then enlarge, each side cut to whole pixels."""
    if limits.most is not None and image.width * image.height > limits.most:
        by = math.sqrt(limits.most / (image.width * image.height))
        image = image.resize((int(image.width * by), int(image.height * by)))
    if limits.least is not None and image.width * image.height < limits.least:
        by = math.sqrt(limits.least / (image.width * image.height))
        image = image.resize((int(image.width * by), int(image.height * by)))
    return image


# By hand, and by qwen-vl-utils 0.0.14 itself in an environment of its own: width, height, factor, limits, result.
BY_QWEN_VL_UTILS = [
    (2544, 3056, 28, DEFAULT_LIMITS, (2548, 3052)),  # within 4 and 16384 tokens: whole tokens alone
    (2544, 3056, 28, PixelLimits(most=1280 * 28 * 28), (896, 1092)),
    (2544, 3056, 32, PixelLimits(most=1280 * 32 * 32), (1024, 1248)),
    (40, 40, 28, DEFAULT_LIMITS, (56, 56)),  # 28 x 28 is one token, so that it grows to four
    (10, 300, 28, DEFAULT_LIMITS, (28, 308)),  # a side that rounds to nothing is one token
    (42, 42, 28, PixelLimits(least=1), (56, 56)),  # 1.5 rounds to the even 2
    (70, 70, 28, PixelLimits(least=1), (56, 56)),  # 2.5 too
]


@pytest.mark.parametrize(("width", "height", "factor", "limits", "result"), BY_QWEN_VL_UTILS)
def test_qwen_vl_utils(width, height, factor, limits, result):
    assert qwen_vl_utils_size(width, height, factor, limits) == result


@given(st.integers(1, 400), st.integers(1, 400), st.integers(1, 30_000), st.integers(1, 30_000))
def test_easyr1_by_its_own_images(width, height, least, most):
    limits = PixelLimits(min(least, most), max(least, most))
    try:
        expected = resized_by_easyr1(Image.new("L", (width, height)), limits).size
    except (ValueError, ZeroDivisionError):
        expected = (0, 0)
    if not all(expected):
        with pytest.raises(ValueError, match="no pixel is left"):
            easyr1_size(width, height, limits)
        return
    assert easyr1_size(width, height, limits) == expected


@given(st.integers(20, 500), st.integers(20, 500), st.sampled_from([DEFAULT_LIMITS, PixelLimits(3136, 60_000)]))
def test_the_processor_has_the_last_word(width, height, limits):
    """What the processor itself makes of the image that each trainer hands it."""
    assume(max(width, height) < 20 * min(width, height))
    processor = Qwen2VLImageProcessorPil(min_pixels=56 * 56, max_pixels=100 * 28 * 28)
    annotated = Image.fromarray(np.zeros((height, width), dtype=np.uint8)).convert("RGB")
    fed = {
        "verl": annotated.resize(qwen_vl_utils_size(width, height, 28, limits)),
        "easyr1": resized_by_easyr1(annotated, trainer_limits("easyr1", limits)),
        "openrlhf": annotated,
    }
    for trainer, image in fed.items():
        _, rows, columns = processor(images=[image], return_tensors="np")["image_grid_thw"][0]
        given_limits = DEFAULT_LIMITS if trainer == "openrlhf" else limits
        found = trainer_size(trainer, processor, width, height, given_limits)
        assert found == (columns * 14, rows * 14), trainer
    # ms-swift tells the processor not to resize, and counts in whole tokens.
    whole = PixelLimits(*(limit and limit // 784 * 784 for limit in (limits.least, limits.most)))
    assert trainer_size("ms-swift", processor, width, height, limits) == qwen_vl_utils_size(width, height, 28, whole)


WRONG = [
    (lambda: trainer_limits("openrlhf", PixelLimits(most=1)), "neither --min-pixels nor --max-pixels for openrlhf"),
    (lambda: qwen_vl_utils_size(10, 10, 28, PixelLimits(most=9)), "at least 3136 for --max-pixels"),
    (lambda: qwen_vl_utils_size(1, 999, 28, DEFAULT_LIMITS), "ratio of 200, got 1 x 999"),
    # 28 x 5600 would be 200 tokens; for 4 of them the narrow side keeps less than one
    (lambda: qwen_vl_utils_size(28, 5600, 28, PixelLimits(most=4 * 784)), "too narrow"),
]


@pytest.mark.parametrize(("make", "message"), WRONG)
def test_limits_that_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_limits_of_a_trainer():
    assert trainer_limits("easyr1", DEFAULT_LIMITS) == PixelLimits(262_144, 4_194_304)  # examples/config.yaml
    # Its smallest area is above the largest that was asked for.
    assert trainer_limits("easyr1", PixelLimits(most=100_000)) == PixelLimits(100_000, 100_000)
    for trainer in ("verl", "ms-swift", "openrlhf"):
        assert trainer_limits(trainer, DEFAULT_LIMITS) == DEFAULT_LIMITS
