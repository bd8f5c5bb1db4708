"""A mix-in that makes vLLM answer the same prompts and images that the trainer computes its gradient on.

Two faults of TRL (seen in 1.16) let it learn from noise in silence, and are mended here:

  * Where vLLM runs in the process of the training, it gets prompts whose image tokens are already written out, and
    writes them out again (huggingface/trl#6294): it answers another prompt than the one that is trained on.
  * vLLM remembers what the vision tower made of an image. Once the tower is trained, and the image comes again, it
    answers from features of old weights (huggingface/trl#7198).

Whatever the cause, prompts of other lengths than the gradient's are refused, and other probabilities are refused at the
first step if the difference is large; otherwise they cause a warning.
"""

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from accelerate.utils import is_peft_model
from torch import nn
from trl import GRPOConfig
from trl.data_utils import prepare_multimodal_messages
from trl.generation.vllm_generation import VLLMGeneration

from grounding_rewards.models.parity import check_rollout
from grounding_rewards.rewards.grounding import RolloutWarning

# At run time the trainer, which comes after the mix-in in the list of bases.
_Trainer: Any = object

#: TRL's metric of a step: the mean over tokens of |log p while training - log p while sampling|.
LOGP_DIFFERENCE = "sampling/sampling_logp_difference/mean"


class VllmRollout(_Trainer):
    """Mix-in for TRL's `GRPOTrainer`, before it in the list of bases."""

    # The prompts of this rollout with one token for each image; None where vLLM takes them as the trainer does.
    _compact_prompt_ids: list[list[int]] | None = None
    is_first_rollout = True
    has_warned = False

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self.use_vllm:
            # TRL builds its engine itself, so that ours, which only adds methods, can take its place only afterwards.
            self.vllm_generation.__class__ = WatchedGeneration
            # vLLM keeps what it computed for images; a step that trains the vision encoder makes it outdated.
            self.vllm_generation.forgets_images = trains_vision(self.model)

    def _generate_and_score_completions(self, inputs: Any) -> Any:
        """As TRL does, then check that vLLM and the trainer give the tokens of the answers like probabilities.

        A large difference is refused in the first rollout, and causes one warning in later ones.
        """
        collated = super()._generate_and_score_completions(inputs)
        # One value for each step since the last log; without vLLM TRL measures none.
        differences = self._metrics["train"].get(LOGP_DIFFERENCE)
        if self.model.training and differences:
            warning = check_rollout(self, differences[-1], refuse=self.is_first_rollout)
            self.is_first_rollout = False
            if warning and not self.has_warned and self.accelerator.is_main_process:
                self.has_warned = True
                warnings.warn(warning, RolloutWarning, stacklevel=2)
        return collated

    def _tokenize_prompts(self, prompts: list[Any]) -> Any:
        """As TRL does; for vLLM in this process, also keep the prompts with only one token for each image.

        vLLM itself writes out this token as the many that the image takes; TRL's prompts already have them.
        """
        tokenized = super()._tokenize_prompts(prompts)
        # TRL returns a tuple of token ids, images and what else the processor makes.
        images = tokenized[1]
        if self.use_vllm and self.vllm_mode == "colocate" and images is not None:
            texts = self.processing_class.apply_chat_template(
                [prepare_multimodal_messages(prompt) for prompt in prompts],
                tools=self.tools or None,
                chat_template=self.chat_template,
                add_generation_prompt=True,
                tokenize=False,
                **self.chat_template_kwargs,
            )
            self._compact_prompt_ids = self._tokenizer(texts, add_special_tokens=False)["input_ids"]
        return tokenized

    def _generate_single_turn(self, prompt_ids: list[list[int]], *args: Any, **kwargs: Any) -> Any:
        """As TRL does; vLLM gets the prompts in the form that it expects, and has to answer as many tokens as TRL's."""
        # With one token for each image, see :meth:`_tokenize_prompts`.
        vllm_prompt_ids = self._compact_prompt_ids or prompt_ids
        # A later turn of the same rollout has another prompt, for which these would be wrong.
        self._compact_prompt_ids = None
        generated = super()._generate_single_turn(vllm_prompt_ids, *args, **kwargs)
        if self.use_vllm:
            _refuse_other_lengths(prompt_ids, self.vllm_generation.prompt_ids)
        return generated


class WatchedGeneration(VLLMGeneration):
    """TRL's engine, which keeps the prompts that vLLM has answered, and forgets images when their tower has changed.

    Attributes:
        forgets_images: whether weights that images pass through are trained.
        prompt_ids: the prompts of the last call, as vLLM saw them.
    """

    forgets_images: bool
    prompt_ids: list[list[int]]

    def generate(self, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        """As TRL does; keep the prompts that vLLM answered."""
        generated = super().generate(*args, **kwargs)
        # TRL returns a tuple that begins with the prompts, completions and log-probabilities.
        self.prompt_ids = generated[0]
        return generated

    def _fix_param_name_to_vllm(self, name: str, *args: Any, **kwargs: Any) -> str:
        """The name of a weight in vLLM: TRL's, with the level that vLLM has in SigLIP."""
        name = super()._fix_param_name_to_vllm(name, *args, **kwargs)
        vision = getattr(self.model.config, "vision_config", None)
        if getattr(vision, "model_type", None) == "siglip_vision_model" and ".vision_model." not in name:
            # SigLIP, the tower of Gemma 3, has a level less in transformers 5 than in vLLM 0.30 and in checkpoints.
            name = name.replace("vision_tower.", "vision_tower.vision_model.")
        return name

    def sync_weights(self) -> None:
        """As TRL does; then make vLLM forget the image features of older weights."""
        super().sync_weights()
        if not self.forgets_images:
            return
        if self.mode == "colocate":
            self.llm.llm_engine.reset_encoder_cache()
        elif self.accelerator.is_main_process:
            self.vllm_client.session.post(f"{self.vllm_client.base_url}/reset_encoder_cache").raise_for_status()


def refuse_other_rollouts(args: GRPOConfig, options: Mapping[str, Any]) -> None:
    """Refuse options with which TRL generates from other inputs than it trains on, and which nothing here mends.

    Args:
        args: TRL's configuration.
        options: further arguments of TRL's trainer.

    Raises:
        ValueError: images would be missing, or their tokens written out twice; names the option.
    """
    if getattr(args, "use_transformers_continuous_batching", False):
        raise ValueError(
            "Expected use_transformers_continuous_batching: false, got true. TRL gives no image to its continuous "
            "batches: leave it out, or set use_vllm: true."
        )
    tools = [name for name in ("tools", "environment_factory") if options.get(name)]
    if args.use_vllm and args.vllm_mode == "colocate" and tools:
        raise ValueError(
            f"Expected no {tools[0]}, such as look_closer, beside vllm_mode: colocate, got one. After the first turn "
            "TRL hands vLLM the tokens of images twice (huggingface/trl#6719): set use_vllm: false."
        )


def trains_vision(model: Any) -> bool:
    """Whether any weight outside the language model is trained, such as those of the vision tower or the projector.

    Args:
        model: a transformers vision-language model, or a PEFT model of one.
    """
    base = model.get_base_model() if is_peft_model(model) else model
    parts: list[nn.Module] = [base.get_decoder(), base.get_input_embeddings(), base.get_output_embeddings()]
    # By identity: `==` would compare the numbers of two weights.
    language_weights: set[int] = set()
    for part in parts:
        language_weights.update(map(id, part.parameters()))
    return any(weight.requires_grad and id(weight) not in language_weights for weight in base.parameters())


def _refuse_other_lengths(trained: Sequence[Sequence[int]], sampled: Sequence[Sequence[int]]) -> None:
    """Refuse prompts that have more or fewer tokens in vLLM than in the trainer.

    Args:
        trained: token ids of the prompts that the trainer computes its gradient on.
        sampled: those that vLLM answered.
    """
    for row, (trained_ids, sampled_ids) in enumerate(zip(trained, sampled, strict=True)):
        if len(trained_ids) != len(sampled_ids):
            raise ValueError(
                f"Expected the {len(trained_ids)} tokens that are trained on for prompt {row} in vLLM, got "
                f"{len(sampled_ids)}. The images have other numbers of tokens there: TRL and vLLM both wrote them out "
                "(huggingface/trl#6294), or vLLM resizes them in another way. Set use_vllm: false, or update both."
            )
