"""The model card of a run: what was trained on what, and how, written beside every saved model."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from accelerate.utils import is_peft_model
from huggingface_hub.repocard_data import ModelCardData

from grounding_rewards.common.atomic_files import write_whole
from grounding_rewards.exchange.model_card import model_name, table_cell, with_metadata
from grounding_rewards.images.resize import has_resized_size, image_pixel_limit
from grounding_rewards.parsing import list_box_formats
from grounding_rewards.training.run_folder import CARD, versions
from grounding_rewards.training.run_options import AUGMENTATION

# At run time the trainer, which comes after the mix-in in the list of bases.
_Trainer: Any = object

# The options of a run that its card shows.
_OPTIONS = (
    *("learning_rate", "lr_scheduler_type", "per_device_train_batch_size", "gradient_accumulation_steps"),
    *("num_generations", "temperature", "beta", "epsilon", "loss_type", "num_iterations", "dtype", "bf16", "seed"),
    *AUGMENTATION,
)
_OF_ADAPTERS = ("lora_r", "lora_alpha", "lora_dropout", "lora_target_modules")

_TEXT = """\
# {name}

A vision-language model that answers with boxes around findings on radiology images, trained by {method} with
grounding_rewards.

| | |
|:--|:--|
{table}

`config.yaml` of the run has every value, `versions.json` every version.

## Use

```python
from PIL import Image
from transformers import pipeline
import grounding_rewards as gr

image = Image.open("image.png")
ask = [{{"role": "user", "content": [{{"type": "image", "image": image}}, {{"type": "text", "text": "..."}}]}}]
answer = pipeline("image-text-to-text", model="{place}")
text = answer(text=ask, return_full_text=False)[0]["generated_text"]
{sizes}
boxes = gr.parse_boxes(text, box_format={box_format}, **sizes).boxes
```

Ask in the words of the training prompts. `grounding-rewards evaluate --model {place} --dataset ... --split test`
measures it beside baselines, on images that no step has seen.

## Limits

No medical device, and no evidence that the model is fit for care. It was trained to agree with reference boxes, which
are opinions of readers, on the images named above and no others.
"""


class RunCard(_Trainer):
    """Mix-in for TRL's trainers: our card of the run instead of TRL's template.

    Attributes:
        run_config: the resolved configuration of the run, as far as there is one.
        reward_lines: the rewards of the run with their parameters; none for a warm start.
        box_format_name: how the model writes boxes.
        method: how it was trained.
    """

    run_config: Mapping[str, Any] = {}
    reward_lines: tuple[str, ...] = ()
    box_format_name: str = ""
    method: str = ""

    def create_model_card(self, *args: Any, **kwargs: Any) -> None:
        """Write the card of the run into `output_dir`, on the first process."""
        if self.is_world_process_zero():
            write_whole(Path(self.args.output_dir, CARD), model_card(self))


def model_card(trainer: Any) -> str:
    """The card of a trainer's model: metadata in YAML, then Markdown.

    It has the names of folders without their parents, and no image, prompt or answer.

    Args:
        trainer: a trainer with :class:`RunCard` among its bases.
    """
    config, base = trainer.run_config, str(trainer.model.config._name_or_path)
    adapted = is_peft_model(trainer.model)
    local = Path(base).is_dir()
    name = model_name(trainer.args.hub_model_id or trainer.args.output_dir)
    data = ModelCardData(
        library_name="peft" if adapted else "transformers",
        pipeline_tag="image-text-to-text",
        base_model=None if local else base,
        tags=["grounding_rewards", "radiology", "visual-grounding", *trainer._tag_names],
    )
    table = "\n".join(f"| {key} | {table_cell(value)} |" for key, value in _facts(trainer, config, base))
    text = _TEXT.format(
        name=name,
        method=trainer.method,
        table=table,
        place=trainer.args.hub_model_id or "path/to/checkpoint",
        box_format=repr(trainer.box_format_name) if trainer.box_format_name in list_box_formats() else "...",
        sizes=_sizes(trainer),
    )
    return with_metadata(data, text)


def _sizes(trainer: Any) -> str:
    """The lines of the example that set the sizes for the box format."""
    plain = 'sizes = {"width": image.width, "height": image.height}'
    if not has_resized_size(trainer.processing_class):
        return plain
    # Boxes in resized pixels need the resized size.
    return (
        "from grounding_rewards.images.resize import resized_size\n"
        f"{plain}\n"
        'sizes["resized_width"], sizes["resized_height"] = resized_size(answer.processor, image.width, image.height)'
    )


def _facts(trainer: Any, config: Mapping[str, Any], base: str) -> Iterator[tuple[str, str]]:
    state = trainer.state
    yield "started from", model_name(base)
    yield "trained", "an adapter (LoRA)" if is_peft_model(trainer.model) else "all weights"
    if trainer.reward_lines:
        yield "reward", "; ".join(trainer.reward_lines)
    if weights := config.get("reward_weights"):
        yield "weights of the rewards", ", ".join(f"{weight:g}" for weight in weights)
    dataset, split = config.get("dataset"), config.get("train_split")
    named = f"{Path(str(dataset)).name}, split {split}, " if dataset else ""
    yield "images", f"{named}{len(trainer.train_dataset)} images"
    if trainer.box_format_name:
        yield "box format", trainer.box_format_name
    limit = image_pixel_limit(trainer.processing_class)
    yield "image size", "as the processor says" if limit is None else f"at most {limit} pixels, kept in the processor"
    yield "steps", f"{state.global_step} of {state.max_steps}, {state.epoch or 0:.2f} epochs"
    if state.best_metric is not None and math.isfinite(state.best_metric):
        best = f"{trainer.args.metric_for_best_model} {state.best_metric:.4f}"
        yield "best evaluation", f"{best}, step {state.best_global_step or 'unknown'}"
    asked = (*_OPTIONS, *(_OF_ADAPTERS if is_peft_model(trainer.model) else ()))
    options = ", ".join(f"{key} {config[key]}" for key in asked if config.get(key) is not None)
    if options:
        yield "options", options
    yield "versions", ", ".join(f"{package} {found}" for package, found in versions().items() if found is not None)
