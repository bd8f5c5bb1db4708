"""What decoding without special tokens costs each box format, on tokenizers built here.

TRL, verl and EasyR1 hand a reward text that was decoded with `skip_special_tokens=True`. `BoxFormat.stripped` says what
that loses. Each tokenizer here is a byte-level BPE with the family's tokens added, special or not, as the family's own
code and configuration add them; where that could not be found out, both ways, and the declaration is the worse one.
"""

import pytest

import grounding_rewards as gr
from grounding_rewards.parsing import get_box_format

pytest.importorskip("transformers")
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

pytestmark = pytest.mark.training

REF_BOX = ["<ref>", "</ref>", "<box>", "</box>"]
QWEN2 = ["<|object_ref_start|>", "<|object_ref_end|>", "<|box_start|>", "<|box_end|>"]
NUMBERS = [f"<{number}>" for number in range(1001)]

# Of the tokens in an answer: those that the family's tokenizer marks special, and those that it holds as plain words.
SPECIAL = {
    "qwen2-vl": QWEN2,  # tokenizer_config.json: ids 151646 to 151649 have "special": true
    "internvl": REF_BOX,  # internvl_chat_finetune.py: add_tokens(..., special_tokens=True)
    "all-seeing": REF_BOX,  # built on InternVL's code
    "deepseek-vl2": ["<|ref|>", "<|/ref|>", "<|det|>", "<|/det|>"],  # processing_deepseek_vl_v2.py: additional_special
    "florence-2": [f"<loc_{number}>" for number in range(1000)],  # processing_florence2.py: additional_special_tokens
}
PLAIN = {
    # transformers, processing_paligemma.py: tokenizer.add_tokens(EXTRA_TOKENS)
    "paligemma": [f"<loc{number:04}>" for number in range(1024)],
    # transformers, processing_kosmos2.py: tokenizer.add_tokens, and decoding without special tokens
    "kosmos-2": [
        "<phrase>",
        "</phrase>",
        "<object>",
        "</object>",
        "</delimiter_of_multi_objects/>",
        *(f"<patch_index_{index:04}>" for index in range(1024)),
    ],
    # processing_maira2.py parses what was decoded without special tokens
    "maira-2": ["<obj>", "</obj>", "<box>", "</box>", *(f"<{axis}{bin}>" for axis in "xy" for bin in range(100))],
}
# Not known, or not the same in every checkpoint: (certainly special, perhaps special)
PERHAPS = {
    "qwen-vl": ([], REF_BOX),  # a tokenizer of its own, which leaves out the ids of these when told to
    "glm-4v": ([], ["<|begin_of_box|>", "<|end_of_box|>"]),  # served text holds them
    "minicpm-v": ([], REF_BOX),  # special in OmniLMM; demos remove them by hand
    "chexagent": ([], REF_BOX),
    "chexagent-2": ([], ["<|ref|>", "<|/ref|>", "<|box|>", "<|/box|>"]),
    "locate-anything": ([], [*REF_BOX, *NUMBERS]),
    "rex-omni": (QWEN2, NUMBERS),  # official evaluation decodes with special tokens
}
SIZES = {"width": 1000, "height": 1000, "resized_width": 1000, "resized_height": 1000}
BOXES = [[100.0, 200.0, 500.0, 600.0], [250.0, 300.0, 950.0, 850.0], [0.0, 50.0, 450.0, 650.0]]
LABELS = ["mass", "mass", "pleural effusion"]


def byte_tokenizer(special=(), plain=()):
    """One token for each byte, and these."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({byte: index for index, byte in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(token, normalized=False, special=True) for token in special])
    tokenizer.add_tokens([AddedToken(token, normalized=False) for token in plain])
    ends = {"eos_token": "<|end|>", "pad_token": "<|pad|>", "clean_up_tokenization_spaces": False}
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **ends)


def tokenizers_of(name):
    """The tokenizers that models of this format are known, or may be thought, to have."""
    certain, perhaps = PERHAPS.get(name, (SPECIAL.get(name, []), []))
    yield byte_tokenizer([*certain, *perhaps], PLAIN.get(name, []))
    if perhaps:
        yield byte_tokenizer(certain, perhaps)


def encode(tokenizer, text):
    return tokenizer(text, add_special_tokens=False)["input_ids"]


def loss(name, tokenizer, labels):
    """What is lost of an answer."""
    text = gr.format_boxes(BOXES, name, labels=labels, **SIZES)
    ids = encode(tokenizer, text)
    assert tokenizer.decode(ids, skip_special_tokens=False) == text
    stripped = tokenizer.decode(ids, skip_special_tokens=True)
    if stripped == text:
        return "nothing"
    whole, rest = (gr.parse_boxes(one, name, **SIZES) for one in (text, stripped))
    return "tags" if rest.boxes.tolist() == whole.boxes.tolist() else "boxes"


@pytest.mark.parametrize("name", gr.list_box_formats())
def test_what_is_lost_is_declared(name):
    losses = {loss(name, tokenizer, labels) for tokenizer in tokenizers_of(name) for labels in (LABELS, None)}
    assert max(losses, key=("nothing", "tags", "boxes").index) == get_box_format(name).stripped


@pytest.mark.parametrize("name", gr.list_box_formats())
def test_a_negative_stays_one(name):
    text = gr.format_boxes([], name, **SIZES)
    for tokenizer in tokenizers_of(name):
        for skip in (False, True):
            read = tokenizer.decode(encode(tokenizer, text), skip_special_tokens=skip)
            assert gr.parse_boxes(read, name, **SIZES).status == "empty"


def columns_of(tokenizer, texts):
    """What TRL hands to a reward function for answers that end and are padded."""
    end = [tokenizer.eos_token_id, tokenizer.pad_token_id, tokenizer.pad_token_id]
    ids = [encode(tokenizer, text) + end for text in texts]
    sizes = {key: [value] * len(texts) for key, value in SIZES.items()}
    completions = tokenizer.batch_decode(ids, skip_special_tokens=True)
    return {"completions": completions, "completion_ids": ids, "boxes": [BOXES] * len(texts), **sizes}


@pytest.mark.parametrize("name", gr.list_box_formats())
def test_with_a_tokenizer_nothing_is_lost(name):
    text = gr.format_boxes(BOXES, name, labels=LABELS, **SIZES)
    for tokenizer in tokenizers_of(name):
        reward = gr.get_reward("R3", box_format=name, tokenizer=tokenizer)
        columns = columns_of(tokenizer, [text])
        (scored,) = reward.details(**columns)
        assert scored.reward == reward(**columns)[0] > 0.9
        assert scored.parsed.labels == gr.parse_boxes(text, name, **SIZES).labels


LOST = [name for name in gr.list_box_formats() if get_box_format(name).stripped == "boxes"]


class TestWithoutATokenizer:
    @pytest.mark.parametrize("name", LOST)
    def test_lost_boxes_are_no_silent_zero(self, name):
        text = gr.format_boxes(BOXES, name, labels=LABELS, **SIZES)
        columns = columns_of(next(tokenizers_of(name)), [text, "no idea"])
        with pytest.raises(ValueError, match=f"Expected a tokenizer for box format {name}, got none"):
            gr.get_reward("R3", box_format=name)(**columns)

    @pytest.mark.parametrize("name", LOST)
    def test_batches_without_boxes_do_not_end_a_run(self, name):
        reward = gr.get_reward("R3", box_format=name)
        # what says that there is nothing holds no tokens in any case
        columns = columns_of(next(tokenizers_of(name)), ["None", ""])
        assert len(reward(**{**columns, "completions": ["None", ""]})) == 2
        text = gr.format_boxes(BOXES, name, labels=LABELS, **SIZES)
        columns = columns_of(next(tokenizers_of(name)), [text, "no idea"])
        assert reward(**{**columns, "completions": [text, ""]})[0] > 0.9
        assert reward(**{**columns, "completions": ["no idea", ""]}) == [0.0, 0.0]
