"""What each trainer does to a reward, and what its module makes of it."""

import asyncio
import inspect
import json
import subprocess
import sys
import types
from pathlib import Path

import numpy as np
import pytest

import grounding_rewards as gr
from grounding_rewards.integrations import ms_swift, nemo_gym, nemo_rl, openrlhf, samples, verifiers, verl
from grounding_rewards.integrations.samples import image_columns, reward_of, scored
from tests.integrations import trainers
from tests.integrations.hard_cases import CASES, LOOSE, ONE, RIGHT, Case
from tests.tables import table

FOLDER = Path(verl.__file__).parent
ADAPTERS = sorted(path for path in FOLDER.glob("*.py") if path.stem not in ("__init__", "samples", "plugin_files"))
TRUTH = Case(RIGHT, ONE).ground_truth


LOWER = {"schedule": "linear", "from": 0.1, "to": 0.95, "over": 0.5}

# What a trainer's configuration says of the reward.


@pytest.mark.parametrize("value", [{"iou_breakpoints": [0.5], "quality_breakpoints": [0, 1]}, {"beta": 2.0}, {}])
def test_a_reward_is_built_once_for_its_parameters(value):
    assert reward_of("R5", **value) is reward_of("R5", **value)
    assert reward_of("R5", **value) == gr.get_reward("R5", **value)


def test_containers_of_omegaconf_are_plain_ones():
    from collections import UserDict, UserList

    given = {"box_format": UserDict({"syntax": "json", "space": "norm1000"}), "iou_breakpoints": UserList([0.5, 0.6])}
    made = reward_of("R5", **given, quality_breakpoints=UserList([0, 0.5, 1]))
    assert made.box_reward.iou_breakpoints == (0.5, 0.6)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        *table("integrations/cases", "a_wrong_configuration_says_what_is_legal"),
        ({"beta": {1, 2}}, "Expected JSON values for the parameters of a reward, got set"),
        ({"iou_threshold": LOWER}, "without a schedule for reward R4 .* got iou_threshold .*train with TRL"),
    ],
)
def test_a_wrong_configuration_says_what_is_legal(given, message):
    with pytest.raises(ValueError, match=message):
        verl.compute_score("images", RIGHT, TRUTH, {}, **given)


@pytest.mark.parametrize(
    ("truth", "message"), table("integrations/cases", "errors_of_authors_are_printed_once_where_trainers_swallow_them")
)
def test_errors_of_authors_are_printed_once_where_trainers_swallow_them(truth, message, capsys):
    samples._PRINTED.clear()
    for _ in range(3):
        with pytest.raises(ValueError, match=message):
            scored(reward_of("R4", box_format="qwen3-vl"), [RIGHT], image_columns([truth]))
    assert capsys.readouterr().err.count(f"grounding_rewards: {message}") == 1


# Ground truths.


@pytest.mark.parametrize(
    ("truth", "beside"),
    [
        (TRUTH, None),
        (json.loads(TRUTH), {"index": 3, "num_turns": 2}),
        # a parquet file gives every row the fields of all
        ({**json.loads(TRUTH), "ignore_boxes": None, "resized_width": None}, {}),
        ('{"boxes": [[64, 48, 320, 240]]}', {"width": 640, "height": 480, "box_format": "qwen3-vl"}),
        ("", {**ONE, "width": 640, "height": 480, "box_format": "qwen3-vl"}),
        (None, {**ONE, "width": 640, "height": 480, "box_format": "qwen3-vl"}),
    ],
)
def test_image_fields_come_from_the_ground_truth_or_other_columns(truth, beside):
    assert verl.compute_score("images", RIGHT, truth, beside)["score"] == 1.0


def test_a_ground_truth_goes_before_what_stands_beside():
    assert image_columns([TRUTH, TRUTH], [{"width": 1}, None])["width"] == [640, 640]


@pytest.mark.parametrize(
    "truth", ["[[64, 48, 320, 240]]", "nodule", "{}", "", 3, "[1, 2", TRUTH[:-1] + ', "boxes": []}']
)
def test_a_ground_truth_without_boxes_is_refused(truth):
    with pytest.raises(ValueError, match="Expected a JSON object with `boxes` for `ground_truth`"):
        verl.compute_score("images", RIGHT, truth, {"index": 1})


# verl


class Tokenizer:
    """Token 0 is `<|im_end|>` and every other one a sign, but those of `special` are taken out of the text."""

    eos_token_id, pad_token_id = 0, 0

    def __init__(self, special):
        self.all_special_tokens = list(special)

    def decode(self, ids, skip_special_tokens):
        kept = [one for one in ids if one and not (skip_special_tokens and chr(one) in self.all_special_tokens)]
        return "".join(map(chr, kept))


def test_verls_reward_manager_reads_token_ids(monkeypatch):
    trainers.with_verl(monkeypatch)
    ours = {"reward_kwargs": {"reward": "R3", "box_format": "qwen2-vl"}}
    config = types.SimpleNamespace(reward=types.SimpleNamespace(custom_reward_function=ours))
    # the tags of the labels are special tokens, without which labels run into text
    manager = verl.GroundingRewardManager(config, Tokenizer("<"), reward_router_address=None)
    text = "<|object_ref_start|>nodule<|object_ref_end|><|box_start|>(100,100),(480,470)<|box_end|>"
    ids = np.array([*map(ord, text), 0, 0, 0])
    batch = {"responses": ids, "attention_mask": np.array([1] * (len(ids) + 3) + [0, 0])}
    others = {"reward_model": {"ground_truth": TRUTH}, "extra_info": {"index": 0}}
    item = types.SimpleNamespace(batch=batch, non_tensor_batch=others)
    told = asyncio.run(manager.run_single([item, item]))
    expected = gr.get_reward("R3", box_format="qwen2-vl")([text], boxes=[ONE["boxes"]], width=[640], height=[480])
    assert [told["reward_score"]] == expected
    assert expected[0] > 0.5
    assert told["reward_extra_info"]["score"] == told["reward_score"]


# ms-swift


def test_ms_swift_has_a_class_for_each_reward(monkeypatch):
    orms = trainers.with_swift(monkeypatch)
    ms_swift.register("R3", iou_threshold=LOWER)
    ms_swift.register("grounding_rewards.rewards.f_beta.MeanIoUReward", log_as="R3_mean")
    # it logs the name of the class
    names = [one(args=object()).__class__.__name__ for one in orms.values()]
    assert names == list(orms) == ["R3", "R3_mean"]
    # it tells the step
    for step, earned in ((0, True), (2, False)):
        state = types.SimpleNamespace(global_step=step, max_steps=2)
        (number,) = orms["R3"]()([LOOSE], ground_truth=[TRUTH], trainer_state=state)
        assert (number > 0) == earned


# OpenRLHF


@pytest.mark.parametrize(
    ("query", "prompt", "answer"),
    [
        (trainers.PROMPT + RIGHT, trainers.PROMPT, RIGHT),
        # the place of an image grows, when a processor fills it in
        (trainers.GROWN + RIGHT + "<|im_end|>", trainers.PROMPT, RIGHT + "<|im_end|>"),
        # a prompt that was too long has lost its beginning
        (trainers.PROMPT[30:] + RIGHT, trainers.PROMPT, RIGHT),
        # a tokenizer puts a token in front
        ("<bos>" + trainers.PROMPT + RIGHT, trainers.PROMPT, RIGHT),
        # an answer that repeats the prompt is cut once
        (trainers.PROMPT + trainers.PROMPT + RIGHT, trainers.PROMPT, trainers.PROMPT + RIGHT),
        # another text, with which the prompt shares its last sign
        ("a\nb", "c\n" * 9, "a\nb"),
        ("a", "", "a"),
    ],
)
def test_an_answer_follows_the_prompt(query, prompt, answer):
    assert openrlhf.answer_in(query, prompt) == answer


def test_the_example_of_a_prompt_is_never_read():
    pytest.importorskip("torch")
    # The box of the example, in pixels, beside one of a usual size.
    label = Case("", {"boxes": [[0.64, 0.96, 1.92, 1.92], [64, 48, 320, 240]]}).ground_truth
    found = openrlhf.reward_func([trainers.GROWN + "I am not sure."], [trainers.PROMPT], [label], "R3")
    assert trainers.EXAMPLE in trainers.GROWN
    assert found["rewards"].tolist() == found["scores"].tolist() == [0.0]
    assert found["extra_logs"]["R3/boxes"].tolist() == [0.0]


def test_a_prompt_that_opens_thinking_is_seen():
    pytest.importorskip("torch")
    prompt = trainers.PROMPT + "<think>\n"
    drafts = openrlhf.reward_func([prompt + RIGHT, prompt + "hm</think>" + RIGHT], [prompt] * 2, [TRUTH] * 2, "R3")
    assert drafts["rewards"].tolist() == [0.0, 1.0]


# NeMo


def test_nemo_rl_is_told_of_the_environment(monkeypatch):
    registered = trainers.with_nemo_rl(monkeypatch)
    nemo_rl.register("boxes")
    path = "grounding_rewards.integrations.nemo_rl.GroundingEnvironment"
    assert registered == {path: "system", "boxes": path}


def test_nemo_rl_gets_one_return_for_the_batch(monkeypatch):
    torch = pytest.importorskip("torch")
    trainers.with_nemo_rl(monkeypatch)
    environment = nemo_rl.GroundingEnvironment({"reward": "R3", "reward_kwargs": {"beta": 1.0}})
    log = [{"role": "user", "content": trainers.EXAMPLE}, {"role": "assistant", "content": RIGHT}]
    told = environment.step([log, log[:1]], [{"ground_truth": TRUTH, "row": 7}] * 2)
    assert told.rewards.tolist() == [1.0, 0.0]
    assert told.terminateds.tolist() == [1, 1]
    assert told.metadata[0]["row"] == 7
    assert told.metadata[0]["grounding"]["R3/recall"] == 1.0
    assert all(one["content"] for one in told.observations)
    _, metrics = environment.global_post_process_and_metrics({"rewards": torch.tensor([1.0, 0.0])})
    assert metrics == {"R3/mean": 0.5}


def test_nemo_gym_has_a_field_for_each_number(monkeypatch):
    pytest.importorskip("pydantic")
    trainers.with_nemo_gym(monkeypatch)
    server = nemo_gym.GroundingResourcesServer
    made = server(config=server.model_fields["config"].annotation(reward_kwargs={"beta": 1.0}))
    request = server.verify.__annotations__["body"]
    fields = []
    for one in CASES.values():
        told = asyncio.run(made.verify(request(response=trainers.gym_response(one.text), ground_truth=one.fields)))
        numbers = {name: value for name, value in told.model_dump().items() if isinstance(value, float)}
        fields.append(sorted(numbers))
        assert all(name.isidentifier() for name in numbers)
    assert len(set(map(tuple, fields))) == 1
    assert {"reward", "R4_f_beta", "R4_status_empty"} <= set(fields[0])


# verifiers


def test_verifiers_finds_a_reward_and_its_components_by_name():
    task, trace = types.SimpleNamespace(ground_truth=TRUTH), types.SimpleNamespace(last_reply=RIGHT)
    for name in ("r1", "r2", "r3", "r4", "r5", "soft_f1"):
        number, components = getattr(verifiers, name), getattr(verifiers, f"{name}_components")
        # it hands over those of its objects that a function names
        assert list(inspect.signature(number).parameters) == ["task", "trace"]
        assert asyncio.run(number(task=task, trace=trace)) == 1.0
        assert all(isinstance(one, float) for one in asyncio.run(components(task=task, trace=trace)).values())


# TRL's protocol elsewhere: Axolotl, Unsloth, TRL's asynchronous GRPO


def test_no_trainer_is_imported():
    names = [f"grounding_rewards.integrations.{path.stem}" for path in ADAPTERS]
    code = f"import {', '.join(names)}, sys; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    others = {"verl", "swift", "openrlhf", "nemo_rl", "nemo_gym", "verifiers", "ray", "trl", "torch"}
    assert others.isdisjoint(loaded)
