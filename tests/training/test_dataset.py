"""Images are prepared alike for a warm start and for GRPO, and what could not be learned is refused."""

import datasets
import pytest
from PIL import Image
from transformers import AutoProcessor, Qwen2VLImageProcessor
from transformers.image_utils import make_flat_list_of_images

import grounding_rewards as gr
from grounding_rewards.images.resize import set_image_size
from grounding_rewards.synthetic import synthetic_dataset
from grounding_rewards.training.dataset import format_name, prepare_examples
from tests.tables import table
from tests.training.runs import ASSET, grpo

pytestmark = pytest.mark.training


@pytest.fixture(scope="module")
def processor():
    return AutoProcessor.from_pretrained(ASSET)


def prepare(images, processor, reward="R4", box_format=None, bad_rows="refuse", **kwargs):
    rewards = [gr.get_reward(reward, box_format=box_format, **kwargs)]
    said = {"box_format": box_format, "model_format": lambda: "qwen2.5-vl", "bad_rows": bad_rows}
    return prepare_examples(images, rewards, processor, name="train_dataset", **said)


@pytest.mark.parametrize(
    ("column", "stated", "box_format"), table("training/cases", "the_box_format_is_the_stated_one_before_all")
)
def test_the_box_format_is_the_stated_one_before_all(processor, column, stated, box_format):
    images = synthetic_dataset("train", 4)
    if column is not None:
        images = images.add_column("box_format", [column] * 4)
    assert set(prepare(images, processor, box_format=stated)["box_format"]) == {box_format}


def test_name_of_the_box_format():
    images = datasets.Dataset.from_dict({"box_format": ["qwen3-vl", "paligemma", "qwen3-vl"]})
    assert format_name(None, images) == "paligemma, qwen3-vl"
    assert format_name("qwen3-vl", images) == "qwen3-vl"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda images: images.to_iterable_dataset(), "Expected a map-style datasets.Dataset for train_dataset"),
        (lambda images: images.remove_columns("image"), "Expected a column image for train_dataset"),
        (lambda images: images.remove_columns("boxes"), "Add boxes"),
        (lambda images: images.select([]), "Expected at least one row for train_dataset"),
        (lambda images: images.map(lambda row: {"width": row["width"] // 2}), "which is not the shape of"),
        (lambda images: images.map(lambda _: {"boxes": [[5.0, 5.0, 2.0, 9.0]], "labels": ["a"]}), "has no area"),
    ],
)
def test_refused(processor, change, message):
    with pytest.raises(ValueError, match=message):
        prepare(change(synthetic_dataset("train", 4)), processor)


def test_bad_rows_can_be_dropped(processor):
    """The image without area goes in the first check, the one that the processor cannot shrink in the second."""
    images = synthetic_dataset("train", 4)
    rows = [{**row, "id": f"image-{k}"} for k, row in enumerate(images)]
    rows[1] |= {"boxes": [[5.0, 5.0, 2.0, 9.0]], "labels": ["a"]}
    rows[2] |= {"image": Image.new("L", (1000, 2)), "width": 1000, "height": 2, "boxes": [], "labels": []}
    spoiled = datasets.Dataset.from_list(rows, features=images.features)
    with pytest.warns(UserWarning, match=r"1 of \d rows of \w+ is dropped") as said:
        kept = prepare(spoiled, processor, bad_rows="drop")
    assert kept["id"][:] == ["image-0", "image-3"]
    assert ["image-1" in str(said[0].message), "image-2" in str(said[1].message)] == [True, True]


def test_large_images_are_brought_to_the_size_of_the_processor(tmp_path):
    limited = AutoProcessor.from_pretrained(ASSET)
    set_image_size(limited, 40000)
    image = synthetic_dataset("train", 6, preset="mixed-512").select([5])
    prepared = prepare(image, limited)
    # By hand: 448 x 448 to at most 40000 pixels is 200 x 200, down to whole tokens of 28.
    assert prepared[0]["image"].size == (196, 196)
    assert (prepared[0]["resized_width"], prepared[0]["resized_height"]) == (196, 196)
    assert (prepared[0]["width"], prepared[0]["boxes"]) == (448, image[0]["boxes"])


class TestGreyImages:
    @pytest.fixture
    def without_grey(self, monkeypatch):
        """The shipped model's image processor fails on grey images, as the real one of LFM2-VL does."""
        preprocess = Qwen2VLImageProcessor.preprocess

        def refuse_grey(self, images, *args, **kwargs):
            if {image.mode for image in make_flat_list_of_images(images)} != {"RGB"}:
                raise RuntimeError("output with shape [1, 1, 112, 112] doesn't match the broadcast shape")
            return preprocess(self, images, *args, **kwargs)

        monkeypatch.setattr(Qwen2VLImageProcessor, "preprocess", refuse_grey)

    def test_train_in_rgb(self, without_grey, tmp_path):
        assert grpo(tmp_path / "run", max_steps=1).state.global_step == 1
