"""Write the model card of a run next to every saved model: what was trained, on what, and how."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from accelerate.utils import is_peft_model
from huggingface_hub.repocard_data import ModelCardData
from jinja2 import Template

from grounding_rewards.common.atomic_files import write_whole
from grounding_rewards.images.resize import has_resized_size, image_pixel_limit
from grounding_rewards.logs.run_log import model_name
from grounding_rewards.parsing import list_box_formats
from grounding_rewards.training.run_folder import CARD

# At run time the trainer, which comes after the mix-in in the list of bases.
_Trainer: Any = object


class RunCard(_Trainer):
    """Mix-in for TRL's trainers that writes our card of the run instead of TRL's.

    Attributes:
        run_config: the resolved configuration of the run; empty without one.
        reward_lines: the rewards of the run with their parameters; none for a warm start.
        box_format_name: how the model writes boxes.
        method: how it was trained.
    """

    run_config: Mapping[str, Any] = {}
    reward_lines: tuple[str, ...] = ()
    box_format_name: str = ""
    method: str = ""

    def create_model_card(self, *args: Any, **kwargs: Any) -> None:
        """Write the card of the run into `output_dir`, on the first process: metadata in YAML, then Markdown.

        It has the names of folders without their parents, and no image, prompt or answer.
        """
        if not self.is_world_process_zero():
            return
        base_model = str(self.model.config._name_or_path)
        metadata = ModelCardData(
            library_name="peft" if is_peft_model(self.model) else "transformers",
            pipeline_tag="image-text-to-text",
            # A folder of this machine means nothing on the hub.
            base_model=None if Path(base_model).is_dir() else base_model,
            tags=["grounding_rewards", "radiology", "visual-grounding", *self._tag_names],
        )
        # A line end or a bar in a value would end its cell of the table.
        cells = {name: " ".join(value.split()).replace("|", "\\|") for name, value in _facts(self).items() if value}
        # A declared format has no name that a reader of the card could write.
        has_named_format = self.box_format_name in list_box_formats()
        template = Path(__file__).with_name("card.md.jinja").read_text(encoding="utf-8")
        text = Template(template, trim_blocks=True, keep_trailing_newline=True).render(
            name=model_name(self.args.hub_model_id or self.args.output_dir),
            method=self.method,
            facts=cells,
            place=self.args.hub_model_id or "path/to/checkpoint",
            box_format=repr(self.box_format_name) if has_named_format else "...",
            has_resized_size=has_resized_size(self.processing_class),
        )
        write_whole(Path(self.args.output_dir, CARD), f"---\n{metadata.to_yaml().strip()}\n---\n\n{text}")


def _facts(trainer: Any) -> dict[str, str]:
    """The rows of the card's table, as name and value; an empty value leaves the row out."""
    config, state = trainer.run_config, trainer.state
    # The arguments of a warm start have no reward weights.
    weights = getattr(trainer.args, "reward_weights", None) or ()
    images = f"{len(trainer.train_dataset)} images"
    if config.get("dataset"):
        images = f"{Path(str(config['dataset'])).name}, split {config.get('train_split')}, {images}"
    pixel_limit = image_pixel_limit(trainer.processing_class)
    return {
        "started from": model_name(str(trainer.model.config._name_or_path)),
        "trained": "an adapter (LoRA)" if is_peft_model(trainer.model) else "all weights",
        "reward": "; ".join(trainer.reward_lines),
        "weights of the rewards": ", ".join(f"{weight:g}" for weight in weights),
        "images": images,
        "box format": trainer.box_format_name,
        "image size": f"at most {pixel_limit} pixels, kept in the processor" if pixel_limit else "",
        "steps": f"{state.global_step} of {state.max_steps}, {state.epoch or 0:.2f} epochs",
    }
