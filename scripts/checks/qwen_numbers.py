"""The shipped small model with the token numbers of Qwen2.5-VL, for trainers that have these written in.

ms-swift takes token 151655 for an image's, whatever the tokenizer says. The numbers between are filled with tokens that
no text becomes, because verl forbids vLLM every number from the length of the tokenizer on.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer
from transformers import AutoModelForImageTextToText, AutoProcessor, PreTrainedTokenizerFast

from grounding_rewards.data.prompts import gold_answer
from grounding_rewards.prepare.load import load_split
from scripts.build_tiny_vlm import BOX_FORMAT, IMAGE_SIZE, SPECIAL_TOKENS, build_processor

#: As in the tokenizer of Qwen/Qwen2.5-VL-3B-Instruct.
QWEN_NUMBERS: Mapping[str, int] = {
    "<|endoftext|>": 151643,
    "<|im_start|>": 151644,
    "<|im_end|>": 151645,
    "<|vision_start|>": 151652,
    "<|vision_end|>": 151653,
    "<|image_pad|>": 151655,
    "<|video_pad|>": 151656,
}
#: Logit of a filling token, whose 150,000 together would otherwise outweigh the right one.
_UNLIKELY = -40.0
#: Images whose prompts and answers show the hidden states that the model has; 128 numbers are solved for.
_IMAGES = 64


def renumber(tokenizer: PreTrainedTokenizerFast) -> PreTrainedTokenizerFast:
    """The tokenizer with Qwen's numbers for special tokens, the old ones for all others, and no gap between them."""
    numbers = {token: QWEN_NUMBERS.get(token, number) for token, number in tokenizer.get_vocab().items()}
    content = json.loads(tokenizer.backend_tokenizer.to_str())
    gaps = set(range(max(numbers.values()))) - set(numbers.values())
    content["model"]["vocab"] = {**numbers, **{f"<|unused_{number}|>": number for number in gaps}}
    for token in content["added_tokens"]:
        token["id"] = numbers[token["content"]]
    return PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer.from_str(json.dumps(content)),
        eos_token=tokenizer.eos_token,
        pad_token=tokenizer.pad_token,
        additional_special_tokens=[token for token in SPECIAL_TOKENS if token != tokenizer.eos_token],
        model_max_length=tokenizer.model_max_length,
        clean_up_tokenization_spaces=False,
        padding_side=tokenizer.padding_side,
    )


def save_with_qwen_numbers(source: str | Path, folder: str | Path) -> None:
    """Write the small model so that it answers as before, with Qwen's numbers, and 150,000 tokens that it never writes.

    Args:
        source: folder of the small model.
        folder: to write.
    """
    model = AutoModelForImageTextToText.from_pretrained(source, dtype=torch.float32)
    processor = AutoProcessor.from_pretrained(source)
    renumbered = build_processor(renumber(processor.tokenizer))
    tokenizer = renumbered.tokenizer
    weight = model.get_input_embeddings().weight.detach()
    places = tokenizer.convert_tokens_to_ids(processor.tokenizer.convert_ids_to_tokens(list(range(len(weight)))))
    embeddings = torch.zeros(len(tokenizer), weight.shape[1])
    head = unlikely_row(model, processor).repeat(len(tokenizer), 1)
    embeddings[places], head[places] = weight, weight

    config = model.config
    config.text_config.vocab_size = len(tokenizer)
    # The filling rows of the head are not embeddings.
    config.tie_word_embeddings = config.text_config.tie_word_embeddings = False
    for mark in ("image", "video"):
        setattr(config, f"{mark}_token_id", QWEN_NUMBERS[f"<|{mark}_pad|>"])
    for mark in ("vision_start", "vision_end"):
        setattr(config, f"{mark}_token_id", QWEN_NUMBERS[f"<|{mark}|>"])
    ends = {"eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.pad_token_id}
    for key, number in ends.items():
        setattr(config.text_config, key, number)
    wide = type(model)(config)
    names = {"model.language_model.embed_tokens.weight": embeddings, "lm_head.weight": head}
    wide.load_state_dict({**model.state_dict(), **names})
    for key, number in ends.items():
        setattr(wide.generation_config, key, number)
    wide.save_pretrained(folder)
    renumbered.save_pretrained(folder)


def unlikely_row(model: Any, processor: Any) -> torch.Tensor:
    """The row of the head whose logit is about :data:`_UNLIKELY` for every hidden state that answers have."""
    states = []
    for row in load_split("synthetic", "train", max_images=_IMAGES):
        prompt = processor.apply_chat_template(row["prompt"], add_generation_prompt=True, tokenize=False)
        size = {"resized_width": IMAGE_SIZE, "resized_height": IMAGE_SIZE}
        text = prompt + gold_answer({**row, **size}, BOX_FORMAT)
        with torch.no_grad():
            states.append(model.model(**processor(text=[text], images=[row["image"]], return_tensors="pt"))[0][0])
    together = torch.cat(states)
    return torch.linalg.lstsq(together, torch.full((len(together), 1), _UNLIKELY)).solution[:, 0]
