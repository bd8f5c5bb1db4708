"""A model that may look closer: coordinates, limits, what a look costs, and the real trainer with pictures in turns."""

import json
from contextlib import suppress

import numpy as np
import pandas
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from trl.chat_template_utils import qwen3_vl_chat_template

from grounding_rewards.cli import main
from grounding_rewards.synthetic import LABELS, synthetic_dataset
from grounding_rewards.training import GroundingGRPOTrainer
from grounding_rewards.training.look_closer import LookCloser, LookEnvironment
from scripts.build_tiny_vlm import build_model, build_processor, build_tokenizer
from tests.tables import table
from tests.test_scripts import script
from tests.training.runs import config, logged

pytestmark = pytest.mark.training


def environment(image=None, width=None, height=None, box_format="qwen3-vl", resized=(None, None), **values):
    """One that was reset with an image of 1000 x 500 pixels, asked in thousandths."""
    made = LookEnvironment(LookCloser(**values), box_format)
    sizes = {"width": width, "height": height, "resized_width": resized[0], "resized_height": resized[1]}
    made.reset(image=image if image is not None else Image.new("L", (1000, 500)), **sizes)
    return made


class TestCoordinates:
    @pytest.mark.parametrize(
        ("box_format", "named"),
        [
            ("qwen3-vl", (100, 200, 300, 600)),
            # as the model sees the image, half as large on each side
            ("qwen2.5-vl", (50, 50, 150, 150)),
        ],
    )
    def test_a_part_is_named_as_the_answer_names_boxes(self, box_format, named):
        pixels = np.random.default_rng(0).integers(0, 256, (500, 1000), dtype=np.uint8)
        looking = environment(Image.fromarray(pixels), box_format=box_format, resized=(500, 250))
        picture, words = looking.zoom(*named)
        # what every processor takes
        assert picture["image"].mode == "RGB"
        assert np.array_equal(np.asarray(picture["image"].convert("L")), pixels[100:300, 100:300])
        assert f"shows {', '.join(map(str, named))} of the image" in words["text"]

    def test_pixels_are_those_of_the_file_where_boxes_have_others(self):
        """The image's boxes are in pixels of 2000 x 1000, its file has half as many on each side."""
        picture, words = environment(width=2000, height=1000, min_side=1).zoom(0, 0, 100, 100)
        assert picture["image"].size == (100, 50)
        assert "shows 0, 0, 100, 100 of the image" in words["text"]

    def test_missing_size_of_the_seen_image_ends_the_run(self):
        with pytest.raises(ValueError, match="resized_width"):
            environment(box_format="qwen2.5-vl")


class TestLimits:
    @pytest.mark.parametrize(
        ("values", "part", "size", "place"),
        [
            # small parts are widened inside the image
            ({"min_side": 40}, (998, 998, 1000, 1000), (40, 40), "960, 920, 1000, 1000"),
            # large ones are shrunk and keep their place
            ({"max_pixels": 5000}, (0, 0, 1000, 1000), (100, 50), "0, 0, 1000, 1000"),
        ],
    )
    def test_sizes_of_parts(self, values, part, size, place):
        picture, words = environment(**values).zoom(*part)
        assert picture["image"].size == size
        assert f"shows {place} of the image" in words["text"]

    def test_a_narrow_part_is_one_that_a_processor_takes(self):
        looking = environment(Image.new("L", (4000, 1000)), min_side=1)
        assert looking.zoom(0, 500, 1000, 501)[0]["image"].size == (4000, 40)

    def test_number_of_looks(self):
        looking = environment(looks=1)
        with pytest.raises(ValueError, match="could not convert string to float"):
            looking.zoom(0, 0, "ten", 10)  # costs no look
        assert "answer now" in looking.zoom(0, 0, 10, 10)[1]["text"]
        with pytest.raises(ValueError, match="all looks are used"):
            looking.zoom(0, 0, 10, 10)
        assert looking.pictures == 1
        looking.reset(image=Image.new("L", (10, 10)))
        assert looking.pictures == 0

    @pytest.mark.parametrize(
        "part", [(None, 0, 9, 9), (9, 0, 9, 9), (1001, 0, 1009, 9), (0, 0, float("inf"), 9), (0, 0, "nan", 9)]
    )
    def test_parts_that_are_none_are_refused(self, part):
        with pytest.raises(ValueError, match="the part lies on the image"):
            environment().zoom(*part)

    anything = st.one_of(
        st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5), st.lists(st.integers(), max_size=4)
    )

    @settings(max_examples=200, deadline=None)
    @given(st.lists(anything, min_size=4, max_size=4))
    def test_whatever_a_model_writes_is_a_picture_or_an_error(self, arguments):
        """Errors of any kind are TRL's to answer."""
        looking = environment(Image.new("L", (300, 20)), min_side=8, max_pixels=2000)
        with suppress(ValueError, TypeError, OverflowError):
            picture = looking.zoom(*arguments)[0]["image"]
            assert picture.width * picture.height <= 2000


@pytest.mark.parametrize(("given", "message"), table("training/cases", "settings_are_checked"))
def test_settings_are_checked(given, message):
    with pytest.raises(ValueError, match=message):
        LookCloser.of(given)


def test_scripted_policy_needs_zoom_for_a_small_nodule():
    found = script("find_small_nodules").accuracies(10)
    assert found["with zoom"] >= 0.9
    assert found["without zoom"] <= 0.2


@pytest.fixture(scope="module")
def tools_vlm(tmp_path_factory):
    """Folder with the untrained Qwen2.5-VL, whose chat template is that of Qwen3-VL, which renders tools."""
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("tools_vlm")
    tokenizer = build_tokenizer((LABELS,))
    model, processor = build_model(tokenizer), build_processor(tokenizer)
    model.config.text_config.max_position_embeddings = 8192
    processor.chat_template = qwen3_vl_chat_template
    for part in (model, processor):
        part.save_pretrained(folder)
    return str(folder)


class FirstTurnsAreWritten(GroundingGRPOTrainer):
    """The first turn of each answer is scripted, what follows a picture is sampled; all else is the trainer."""

    calls = (
        {"name": "zoom", "arguments": {"x1": 0, "y1": 0, "x2": 56, "y2": 56}},
        {"name": "zoom", "arguments": {"x1": 56, "y1": 56, "x2": 112, "y2": 112}},
        {"name": "zoom", "arguments": {"x1": "left", "y1": 0, "x2": 56, "y2": 56}},
    )

    def _generate_single_turn(self, prompt_ids, images, fields, num_generations, has_tool_images=False):
        if has_tool_images:
            self.seen.append([len(of_one) for of_one in images])
            # A dozen tokens are answer enough; max_completion_length has to have room for the pictures.
            self.generation_config.max_new_tokens = 12
            return super()._generate_single_turn(prompt_ids, images, fields, num_generations, has_tool_images)
        turns = [f"<tool_call>\n{json.dumps(call)}\n</tool_call><|im_end|>" for call in self.calls]
        return [self._tokenizer(turn)["input_ids"] for turn in (*turns, "[]<|im_end|>")], None


def test_the_trainer_takes_steps_with_pictures_in_its_turns(tools_vlm, tmp_path):
    values = {"max_completion_length": 700, "log_completions": True, "num_completions_to_print": 0}
    args, looks = config(tmp_path, max_steps=2, learning_rate=1e-3, **values), LookCloser(looks=1, cost=0.5)
    trainer = FirstTurnsAreWritten(tools_vlm, "R4", args, synthetic_dataset("train", 8), extras=[looks])
    trainer.seen = []
    before = {name: value.clone() for name, value in trainer.model.state_dict().items()}
    trainer.train()
    assert trainer.state.global_step == 2
    # The image and one picture for the first two answers, the image alone for the one that asked wrongly.
    assert trainer.seen == [[2, 2, 1]] * 2
    for entry in logged(trainer):
        assert entry["tools/call_frequency"] == 0.75
        assert entry["tools/failure_frequency"] == pytest.approx(1 / 3)
        assert entry["rewards/looks/mean"] == -0.25
        assert entry["reward"] == pytest.approx(entry["rewards/R4/mean"] - 0.25)
    assert any(not torch.equal(before[name], value) for name, value in trainer.model.state_dict().items())
    assert trainer.train_dataset[0]["full_image"]["bytes"]
    # x1 is a number in one call and a word in another; one tool shows a picture, another says why not.
    table, _ = sorted((tmp_path / "completions").iterdir())
    answers = list(map(list, pandas.read_parquet(table)["completion"]))
    called = [json.loads(one[0]["tool_calls"][0]["function"]["arguments"]) for one in answers[:3]]
    assert called == [call["arguments"] for call in FirstTurnsAreWritten.calls]
    assert "could not convert string to float: 'left'" in answers[2][1]["content"]
    assert main(["score", str(table), "--rewards", "R4", "--out", str(tmp_path / "scored.jsonl")]) == 0
    scored = [json.loads(line)["R4"] for line in (tmp_path / "scored.jsonl").read_text().splitlines()]
    assert np.float32(scored).tolist() == pandas.read_parquet(table)["R4"].tolist()


def test_a_token_of_a_video_does_not_end_the_run(tools_vlm, tmp_path, monkeypatch):
    """Every model may sample it in the answer behind a picture."""

    def written(self, prompt_ids, *_, has_tool_images=False):
        return [self._tokenizer("<|video_pad|>[]<|im_end|>")["input_ids"] for _ in prompt_ids], None

    monkeypatch.setattr(GroundingGRPOTrainer, "_generate_single_turn", written)
    made = config(tmp_path, max_completion_length=700)
    trainer = FirstTurnsAreWritten(tools_vlm, "R4", made, synthetic_dataset("train", 8), extras=[LookCloser(looks=1)])
    trainer.seen = []
    trainer.train()
    assert trainer.state.global_step == 1
