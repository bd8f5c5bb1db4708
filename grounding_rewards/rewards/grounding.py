"""From the text of completions to rewards: the callable that TRL takes.

A completion is read in its box format; its boxes are converted to original pixels, matched and scored. Whatever a
model writes gets a finite number. A wrong dataset or configuration raises at once, and the message says what to do.
"""

from __future__ import annotations

import copy
import inspect
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import grounding_rewards.rewards.scoring as scoring
from grounding_rewards.boxes import BoxBatch
from grounding_rewards.columns import (
    column_of,
    ignore_regions,
    image_sizes,
    read_references,
    refuse_outside,
    with_ground_truth,
)
from grounding_rewards.parsing import BoxFormat, get_box_format, read_boxes
from grounding_rewards.parsing.answer_span import marks_thinking
from grounding_rewards.parsing.space_check import BatchWatcher, SpaceWarning
from grounding_rewards.rewards.box_reward import (
    COUNTS,
    PARTS,
    BoxScorer,
    Explanation,
    Labels,
    Outcomes,
    check_fields,
    parameter,
)
from grounding_rewards.rewards.completions import box_tokens, check_completion_texts, completion_text, decoded
from grounding_rewards.rewards.controls import TextReward
from grounding_rewards.rewards.f_beta import MeanIoUReward
from grounding_rewards.rewards.registry import TEXT_CONTROLS, check_parameters, make_box_reward, name_of, takes
from grounding_rewards.rewards.schedules import (
    Pace,
    Schedules,
    present_values,
    split_schedules,
    training_progress,
    with_values,
)
from grounding_rewards.rewards.scoring import columns_of, metrics_of

#: Fields of a :class:`GroundingReward` that say how texts are read: rewards that share them read a text once.
READING = ("box_format", "on_truncated", "prompt_opens_thinking", "tokenizer", "stop_ids")


class RolloutWarning(UserWarning):
    """Completions may be answers to another prompt, or of another model, than the one that is trained."""


@dataclass(frozen=True)
class GroundingReward(BoxScorer):
    """A reward on text: reads boxes out of completions and scores them. Made by :func:`get_reward`.

    Frozen, hashable and picklable, with ``__name__``, as TRL wants its reward functions.

    Attributes:
        name: the name under which TRL logs it.
        box_reward: the reward on boxes: an object with ``score(pred, gt)``; scheduled parameters are at their ends.
        box_format: how the model writes boxes: a name, or the format that :func:`get_box_format` made of a mapping;
            None takes the name from the ``box_format`` column.
        on_unparseable: what a text without boxes and without a no-finding statement earns on an image without findings:
            ``"zero"``, or ``"empty"``, the bonus for a correct negative unless something broken stands for a box.
        on_truncated: ``"keep"`` scores the complete boxes of a text that was cut off, ``"zero"`` gives it 0.
        prompt_opens_thinking: whether the prompt ends in an open mark of thinking, so that a completion begins inside
            it: without a closing mark it has no answer.
        readers: what a row with several readers earns: ``"best"``, the reward by the reader who suits the answer best;
            ``"mean"``, the expected reward by one of them.
        tokenizer: decodes ``completion_ids`` where special tokens carry the syntax of the boxes or mark thinking.
        stop_ids: tokens that are left out when a completion is decoded, as are the tokenizer's own end and padding.
        schedules: the scheduled parameters by name, which calling the reward follows; all else takes the final values.
        text_reward: a control that scores the texts; `box_reward` then gives only the matches that are logged.
    """

    name: str
    box_reward: Any
    box_format: str | BoxFormat | None = None
    on_unparseable: str = parameter("zero", ("zero", "empty"))
    on_truncated: str = parameter("keep", ("keep", "zero"))
    prompt_opens_thinking: bool = parameter(False, bool)
    readers: str = parameter("best", ("best", "mean"))
    # Not compared: tokenizers compare by identity, so a copied reward would differ from the original.
    tokenizer: Any = field(default=None, compare=False, repr=False)
    stop_ids: frozenset[int] = field(default=frozenset(), compare=False, repr=False)
    schedules: Schedules = ()
    text_reward: TextReward | None = None
    # It only watches: nothing that it has seen affects a reward.
    _watcher: BatchWatcher = field(default_factory=BatchWatcher, init=False, compare=False, repr=False)
    # Whether the tokenizer has special tokens that mark thinking, which are missing in the trainer's text.
    _hides_thinking: bool = field(default=False, init=False, compare=False, repr=False)
    # Names of box formats whose special tokens were seen in a trainer's text: these need no tokenizer.
    _formats_with_tokens: set[str] = field(default_factory=set, init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        """Refuse options that are not legal, and keep the format and the tokenizer in the form that reading needs.

        `object.__setattr__` sets attributes, as the dataclass is frozen.
        """
        if self.box_format is not None:
            declared_format = get_box_format(self.box_format)
            if not isinstance(self.box_format, str):
                # A mapping could be changed later, and has no hash.
                object.__setattr__(self, "box_format", declared_format)
            self._refuse_lost_labels([declared_format])
        if self.tokenizer is not None:
            # A processor is given in the place of the tokenizer that it has.
            object.__setattr__(self, "tokenizer", getattr(self.tokenizer, "tokenizer", self.tokenizer))
            if not callable(getattr(self.tokenizer, "decode", None)):
                raise ValueError(
                    f"Expected an object with `decode` for `tokenizer`, got {self.tokenizer!r:.200}. Pass the model's "
                    "processor or tokenizer, not its name."
                )
            special_tokens = getattr(self.tokenizer, "all_special_tokens", ())
            object.__setattr__(self, "_hides_thinking", marks_thinking(special_tokens))
        check_fields(self)

    @property
    def __name__(self) -> str:
        """The name under which TRL logs it."""
        return self.name

    @property
    def compares_labels(self) -> bool:
        """Whether a box with the wrong label matches nothing, so that the dataset needs labels."""
        return getattr(self.box_reward, "label_matching", "ignore") != "ignore"

    def final(self) -> GroundingReward:
        """The same reward with every scheduled parameter at its final value: for metrics, outside of a training.

        Example:
            >>> lower = {"schedule": "linear", "from": 0.1, "to": 0.5, "over": 0.4}
            >>> get_reward("R3", iou_threshold=lower).final() == get_reward("R3", iou_threshold=0.5)
            True
        """
        return replace(self, schedules=())

    @property
    def judges_boxes(self) -> bool:
        """Whether boxes and references decide, and not the text or the other answers alone, as with most controls."""
        return self.text_reward is None

    def _score_images(self, pred: BoxBatch, gt: BoxBatch, ignore: BoxBatch | None, *labels: Labels) -> Outcomes:
        """Score boxes instead of texts, by the reward on boxes; refused for a control that judges texts.

        `labels` are two, those of all predicted and those of all reference boxes.
        """
        if not self.judges_boxes:
            raise ValueError(
                f"Expected a reward on boxes for `score`, got {self.name}, which scores texts. "
                "Call it with completions and the dataset's columns."
            )
        codes = self.box_reward.label_codes(*labels) if self.compares_labels else None
        return scoring.score_boxes(self.box_reward, pred, gt, ignore=ignore, labels=codes)

    def __call__(
        self,
        completions: Sequence[Any],
        *,
        log_metric: Callable[[str, float], None] | None = None,
        log_extra: Callable[[str, list[Any]], None] | None = None,
        trainer_state: Any = None,
        step: Any = None,
        max_steps: Any = None,
        pace: Pace | None = None,
        on_scored: Callable[[scoring.Scored], None] | None = None,
        **columns: Any,
    ) -> list[float]:
        """Score one batch: TRL's protocol for reward functions.

        Args:
            completions: n texts, message lists (the last assistant message counts) or lists of content blocks.
            log_metric: called with each of :data:`grounding_rewards.rewards.scoring.METRIC_KEYS` under the reward's
                name, and with every scheduled parameter (``"R3/iou_threshold"``).
            log_extra: called with the status and the reason of every completion, the number of its boxes that count
                (broken ones do, ignored ones do not), that of the findings, and its row: what it was scored against,
                see :func:`grounding_rewards.rewards.scoring.logged_rows`.
            trainer_state: TRL's, which says how far the training is; like the next three for schedules alone.
            step: in other trainers, how many steps are over, together with
            max_steps: how many there are.
            pace: holds the values of self-paced parameters, see :class:`grounding_rewards.rewards.schedules.Pace`.
            on_scored: called with all that was read and matched, for those who log more of it than this does.
            **columns: the dataset's columns, one entry per completion: ``boxes`` in original pixels, ``width`` and
                ``height`` (or ``image``), ``resized_width`` and ``resized_height`` for formats in resized pixels,
                ``box_format`` if the reward has none; or all of these in ``ground_truth``, one JSON string each.
                ``labels``, one per box, for a reward that compares labels. Optional: ``ignore_boxes``, regions in
                original pixels, each of which excuses one prediction that matches and touches nothing;
                ``reader_boxes`` (with ``reader_labels``), one list of boxes per reader, empty for a reader who drew
                nothing, in place of ``boxes`` in every row where it is not None: what they are worth together is
                ``readers``; ``completion_ids``, token ids that are decoded where special tokens carry the boxes and the
                reward has a tokenizer. Other columns are ignored.

        Returns:
            n numbers in [0, 1].

        Raises:
            ValueError: a column is missing, has another length, or holds something that is not a box, label or size; a
                reference box reaches beyond its image; the reward compares labels, and the box format has none; special
                tokens carry the boxes, ``completion_ids`` are given, and there is no tokenizer to decode them; or a
                parameter is scheduled, and nothing says how far the training is.

        Warns:
            SpaceWarning: once, where the boxes of many images contradict the space or the order of the box format; it
                says what to declare, see :mod:`grounding_rewards.parsing.space_check`. Also once, where marks of
                thinking in many completions contradict ``prompt_opens_thinking``, see
                :mod:`grounding_rewards.parsing.answer_span`.
            RolloutWarning: once, where TRL itself may hand vLLM the tokens of images twice (huggingface/trl#6294).

        Example:
            >>> reward = get_reward("R3", box_format="qwen3-vl")
            >>> texts = ['[{"bbox_2d": [0, 0, 500, 400]}]', "[]", "no idea"]
            >>> reward(texts, boxes=[[[0, 0, 50, 50]], [], []], width=[100] * 3, height=[100] * 3)
            [0.8, 0.2, 0.0]
            >>> lower = {"schedule": "linear", "from": 0.1, "to": 0.9, "over": 0.5}
            >>> reward = get_reward("R3", box_format="qwen3-vl", iou_threshold=lower)
            >>> image = {"boxes": [[[0, 0, 50, 50]]], "width": [100], "height": [100]}
            >>> [reward(texts[:1], **image, step=step, max_steps=2) for step in (0, 1)]
            [[0.8], [0.0]]
        """
        scheduled_values: dict[str, float] = {}
        present_reward = self
        if self.schedules:
            progress = training_progress(trainer_state, step, max_steps)
            scheduled_values = present_values(self.name, self.schedules, progress, pace)
            # A copy with the values of this step, which shares what the watcher has seen.
            present_reward = copy.copy(self)
            object.__setattr__(present_reward, "box_reward", with_values(self.box_reward, scheduled_values))
        batch = self._read(completions, columns, labelled=self.compares_labels)
        scored = scoring.score_batch(batch, present_reward)
        refuse_outside(scored.references, scored.sizes, scored.columns)
        self._notice_wrong_reading(scored)
        if pace is not None:
            pace.note(scored.outcomes.tp, scored.outcomes.m)
        if on_scored is not None:
            on_scored(scored)
        elif "vllm" in sys.modules and not columns.keys().isdisjoint(("image", "images")):
            # Our own trainer, which mends it, gives `on_scored`.
            _warn_of_doubled_images()
        if log_metric is not None:
            for key, value in (metrics_of(scored) | scheduled_values).items():
                log_metric(f"{self.name}/{key}", value)
        if log_extra is not None:
            texts = [completion_text(completion) for completion in completions]
            scheduled = {f"{self.name}/{parameter}": value for parameter, value in scheduled_values.items()}
            for column, values in columns_of(scored, texts, scheduled).items():
                log_extra(f"{self.name}/{column}", values)
        return scored.outcomes.reward.tolist()

    def details(self, completions: Sequence[Any], **columns: Any) -> list[Explanation]:
        """Score one batch, of the same columns as a call takes, and say why. Schedules are at their ends.

        Example:
            >>> reward = get_reward("R3", box_format="qwen3-vl")
            >>> texts = ['[{"bbox_2d": [0, 0, 500, 400]}]', "[]"]
            >>> for scored in reward.details(texts, boxes=[[[0, 0, 50, 50]], []], width=[100] * 2, height=[100] * 2):
            ...     print(round(scored.reward, 2), scored.reason)
            0.8 1 of 1 found, mean IoU 0.80
            0.2 nothing to find, and says so
        """
        batch = self._read(completions, columns, labelled=self.compares_labels)
        return scoring.score_batch(batch, self).explanations()

    def _read(self, completions: Sequence[Any], columns: Mapping[str, Any], *, labelled: bool) -> scoring.Batch:
        """Read the boxes of n completions, and their references, with labels if `labelled`."""
        n = len(completions)
        check_completion_texts(completions)
        columns = with_ground_truth(columns, n)
        references = read_references(columns, n, labelled=labelled)
        ignore = ignore_regions(columns, n)
        formats = self._formats(columns, n)
        texts = self._texts(completions, formats, columns)
        # Whether each text begins inside its thinking, which the rows of a training's log may state.
        opened_in_rows = column_of(columns, "prompt_opens_thinking", n)
        rows_open = [False] * n if opened_in_rows is None else opened_in_rows
        opened = [self.prompt_opens_thinking or bool(is_open) for is_open in rows_open]
        raws = []
        for text, fmt, is_open in zip(texts, formats, opened, strict=True):
            raw = read_boxes(text, fmt, prompt_opens_thinking=is_open)
            if self.on_truncated == "zero" and raw.status == "truncated":
                # Its boxes are dropped: then a text that was cut off earns nothing, also where nothing is to find.
                raw = raw._replace(coords=[], labels=[], scores=[], broken=())
            raws.append(raw)
        sizes = image_sizes(columns, n)
        pred = scoring.predicted_boxes(raws, formats, sizes)
        return scoring.Batch(texts, raws, pred, formats, opened, references, ignore, columns, sizes)

    def _notice_wrong_reading(self, batch: scoring.Scored) -> None:
        """Warn, once for each, where texts contradict what was declared of them.

        That is whether prompts open thinking, and the coordinate space and the order of numbers of a box format.
        """
        # Under the scope "all" thinking is read like any other text.
        texts = (text for text, fmt in zip(batch.texts, batch.formats, strict=True) if fmt.scope != "all")
        suspicion = self._watcher.watch_thinking(texts, prompt_opens_thinking=any(batch.opened))
        if suspicion is not None:
            warnings.warn(f"{self.name}: {suspicion}", SpaceWarning, stacklevel=3)
        # Only the first images of a format are watched: after them nothing need be split.
        if self._watcher.wants_boxes(batch.formats):
            for check in self._watcher.watch_boxes(batch.raws, batch.formats, batch.gt.split(), batch.sizes):
                warnings.warn(f"{self.name}: {check.message}", SpaceWarning, stacklevel=3)

    def _formats(self, columns: Mapping[str, Any], n: int) -> list[BoxFormat]:
        """The box format of each of n completions: the reward's own, or those in the column `box_format`."""
        if self.box_format is not None:
            return [get_box_format(self.box_format)] * n
        names = column_of(columns, "box_format", n)
        if names is None or any(name is None for name in names):
            raise ValueError(
                f"Expected a box format for reward {self.name}, got none. Give get_reward(..., box_format=...), "
                "--box-format on the command line, or the dataset a column `box_format`."
            )
        formats = [get_box_format(name) for name in names]
        self._refuse_lost_labels(formats)
        return formats

    def _refuse_lost_labels(self, formats: Sequence[BoxFormat]) -> None:
        """Refuse formats that write no labels if the reward compares them."""
        if not self.compares_labels:
            return
        # By identity, as hashing a format, with all that it has, is slow.
        distinct_formats = {id(fmt): fmt for fmt in formats}.values()
        for fmt in distinct_formats:
            if not scoring.has_labels(fmt):
                raise ValueError(
                    f"Expected a box format with labels for label_matching={self.box_reward.label_matching!r}, "
                    f"got {fmt.name}, in which no box would match. Use another format, or "
                    'label_matching="ignore".'
                )

    def _texts(self, completions: Sequence[Any], formats: Sequence[BoxFormat], columns: Mapping[str, Any]) -> list[str]:
        """The texts, decoded from the token ids where the trainer's text lacks special tokens that matter."""
        texts = [completion if type(completion) is str else completion_text(completion) for completion in completions]
        # Of boxes or labels, or of the marks of thinking.
        needs_tokens = [fmt.from_token_ids or self._hides_thinking for fmt in formats]
        token_ids = column_of(columns, "completion_ids", len(texts)) if any(needs_tokens) else None
        if token_ids is None:
            return texts
        if self.tokenizer is None:
            # The trainer's text will do unless its boxes were lost.
            self._refuse_lost_boxes(texts, formats)
            return texts
        for k, ids in enumerate(token_ids):
            if needs_tokens[k]:
                texts[k] = decoded(self.tokenizer, self.stop_ids, ids)
        return texts

    def _refuse_lost_boxes(self, texts: Sequence[str], formats: Sequence[BoxFormat]) -> None:
        """Refuse texts out of which the trainer took the special tokens of the boxes."""
        # The formats whose boxes are special tokens, each once.
        distinct_formats = {id(fmt): fmt for fmt in formats if fmt.stripped == "boxes"}.values()
        for fmt in distinct_formats:
            texts_in_format = [text for text, text_format in zip(texts, formats, strict=True) if text_format is fmt]
            if any(map(box_tokens(fmt).search, texts_in_format)):
                # Tokens that were seen in one text show that the trainer keeps them in all.
                self._formats_with_tokens.add(fmt.name)
            lacks_tokens = fmt.name not in self._formats_with_tokens
            # Text without tokens that does not state that there is nothing: its boxes were lost.
            if lacks_tokens and any(text and read_boxes(text, fmt).status != "empty" for text in texts_in_format):
                raise ValueError(
                    f"Expected a tokenizer for box format {fmt.name}, got none. Its boxes are special tokens, which "
                    "trainers take out of the text. Pass the processor of the model, "
                    f'get_reward("{self.name}", ..., tokenizer=processor), or train with GroundingGRPOTrainer, which '
                    "does so by itself. If you decode with skip_special_tokens=False, leave out `completion_ids`."
                )


@cache
def _warn_of_doubled_images() -> None:
    """Warn, once in a process, of a TRL that may let vLLM answer other prompts than the trainer's."""
    trainer = getattr(sys.modules.get("trl.trainer.grpo_trainer"), "GRPOTrainer", None)
    # huggingface/trl#6718, which mends it, gave this method of the trainer a parameter with prompts for vLLM alone.
    if trainer is None or "vllm_prompt_ids" in inspect.signature(trainer._generate_single_turn).parameters:
        return
    warnings.warn(
        "With use_vllm and vllm_mode='colocate' this TRL writes out the tokens of each image, and vLLM writes them out "
        "again (huggingface/trl#6294): the model answers other prompts than it is trained on. Train with "
        "grounding_rewards.training.GroundingGRPOTrainer, which mends it, or with vllm_mode='server' or without vLLM.",
        RolloutWarning,
        stacklevel=4,
    )


def get_reward(
    name: Any,
    *,
    log_as: str | None = None,
    box_format: str | Mapping[str, Any] | BoxFormat | None = None,
    on_unparseable: str = "zero",
    on_truncated: str = "keep",
    prompt_opens_thinking: bool = False,
    readers: str = "best",
    tokenizer: Any = None,
    **params: Any,
) -> GroundingReward:
    """Build a reward by name, or of a class, an instance or a function of one's own.

    Args:
        name: one of :func:`grounding_rewards.list_rewards`, among them what was given to
            :func:`grounding_rewards.register_reward`; or a class or factory, an object with ``score(pred, gt)``, or a
            function of ``pred`` and ``gt``, itself or its dotted path.
        log_as: the `__name__` under which a trainer logs it, where one reward is taken twice with other parameters;
            None takes the name of the reward, class or function.
        box_format: how the model writes boxes: a name, see :func:`grounding_rewards.list_box_formats`, or a format of
            your own as a mapping, see :func:`grounding_rewards.parsing.get_box_format`. None takes the name from the
            ``box_format`` column of the dataset.
        on_unparseable: ``"zero"``: a text with neither boxes nor a no-finding statement earns 0 also on an image
            without findings; ``"empty"``: it counts as a negative there (specification §9.1 to the letter).
        on_truncated: ``"keep"`` scores the complete boxes of a text that was cut off; ``"zero"`` gives it 0.
        prompt_opens_thinking: True where the chat template ends in an open mark of thinking, such as ``<think>``, as
            Qwen3-VL-Thinking's does: a completion without a closing mark was cut off inside its thinking, and neither
            a draft nor a musing in it counts. :class:`grounding_rewards.training.GroundingGRPOTrainer` sees it by
            itself.
        readers: what an answer to a row with ``reader_boxes`` earns: ``"best"``, the greatest reward by any reader,
            so that marking too much, or too little, pays wherever one of them did; or ``"mean"``, the mean over the
            readers, what it is worth by one of them, drawn at random. What is said of the answer beside the number is
            by the reader who suits it best.
        tokenizer: the model's tokenizer or processor, for formats whose syntax is made of special tokens
            (``BoxFormat.stripped``), and for models that mark their thinking by special tokens: trainers take those
            out of the text, so ``completion_ids`` are decoded instead.
            :class:`grounding_rewards.training.GroundingGRPOTrainer` sets it by itself.
        **params: parameters of the reward, such as ``beta``, ``iou_threshold``, ``no_box_bonus``, ``graded_negatives``,
            ``label_matching``. In the place of a number may stand a schedule, a mapping such as
            ``{"schedule": "linear", "from": 0.1, "to": 0.5, "over": 0.4}`` or ``{"schedule": "self_paced", "of":
            "hit_rate", "from": 0.1, "to": 0.5}``, see :func:`grounding_rewards.rewards.schedules.read_schedule`.

    Returns:
        The reward, ready for ``GRPOTrainer(reward_funcs=...)``.

    Raises:
        ValueError: an unknown name, format or parameter, or a value out of range; the message lists what is legal.

    Example:
        >>> reward = get_reward("R4", beta=1.0, box_format="qwen2.5-vl")
        >>> reward.__name__
        'R4'
        >>> get_reward("R3", iou_threshold=0.3, log_as="R3_low").__name__
        'R3_low'
        >>> def same_count(pred, gt):
        ...     return float(len(pred) == len(gt))
        >>> get_reward(same_count, box_format="qwen3-vl").score([], [[0, 0, 10, 10]])
        0.0
        >>> get_reward("R6")  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        ValueError: Expected a known name for `reward`, got 'R6'. Use one of: R1, R2, ...; or a dotted path.
    """
    if not (log_as is None or (isinstance(log_as, str) and log_as)):
        raise ValueError(f"Expected a name for `log_as`, got {log_as!r}. Curves and columns of a log are called by it.")
    final_params, schedules = split_schedules(params)
    text_reward = None
    if isinstance(name, str) and name in TEXT_CONTROLS:
        # A control that scores texts; R3 beside it gives the matches that are logged.
        check_parameters(name, TEXT_CONTROLS[name], params)
        box_reward, text_reward = MeanIoUReward(), TEXT_CONTROLS[name](**params)
    else:
        box_reward = _box_reward(name, final_params, schedules)
    # A mapping too, of which GroundingReward makes a format.
    declared_format: Any = box_format
    return GroundingReward(
        name=name_of(name) if log_as is None else log_as,
        box_reward=box_reward,
        box_format=declared_format,
        on_unparseable=on_unparseable,
        on_truncated=on_truncated,
        prompt_opens_thinking=prompt_opens_thinking,
        readers=readers,
        tokenizer=tokenizer,
        schedules=schedules,
        text_reward=text_reward,
    )


def _box_reward(reward: Any, params: Mapping[str, Any], schedules: Schedules) -> Any:
    """The reward on boxes that a name, path or object stands for, with the final values of scheduled parameters.

    Args:
        reward: a name, a path or an object, as :func:`get_reward` takes it.
        params: the parameters of the reward, scheduled ones with their final values.
        schedules: the schedules of the scheduled parameters.

    Raises:
        ValueError: it is no reward on boxes, or a parameter is not legal, at the end or at the start of its schedule.
    """
    box_reward = make_box_reward(reward, params)
    if isinstance(box_reward, GroundingReward):
        # A path such as grounding_rewards.rewards.R4 leads to a reward on text, whose part on boxes is taken. An object
        # that was handed over, or one that is more than that part, would lose something.
        if box_reward is reward or box_reward.text_reward or box_reward.schedules:
            raise ValueError(
                f"Expected a reward on boxes for `reward`, got {box_reward.name}, which reads texts already. Use it as "
                "it is, or build it by name with other options."
            )
        box_reward = box_reward.box_reward
    if not takes(getattr(box_reward, "score", None), "pred", "gt"):
        raise ValueError(
            f"Expected an object with `score(pred, gt)` for reward {name_of(reward)!r}, got {box_reward!r}. "
            "Give its class that method, of these two arguments, or subclass BoxReward."
        )
    # Only to have the start values checked too; values in between are then legal.
    with_values(box_reward, {parameter: schedule.start for parameter, schedule in schedules})
    return box_reward


def score_columns(
    rewards: Sequence[GroundingReward], completions: Sequence[Any], **columns: Any
) -> dict[str, list[Any]]:
    """Score one batch by several rewards and say why, as columns: :meth:`GroundingReward.details` for many rewards.

    Every text is read once, however many rewards there are, and no object is made per completion.

    Args:
        rewards: rewards with the same box format, tokenizer and rules for truncated texts and for thinking.
        completions: n texts, message lists or lists of content blocks.
        **columns: as for calling a reward.

    Returns:
        Lists of n: ``status``, ``rejected`` (reason → count) and ``boxes`` (how many were read), then for every reward
        its number under its name, and under ``"R3/f_beta"`` and so on f_beta, quality, precision, recall, mean_iou, tp,
        fp, fn and reason.

    Raises:
        ValueError: as :func:`check_alike`, or as calling a reward.

    Warns:
        SpaceWarning: as calling the first reward.

    Example:
        >>> rewards = [get_reward(name, box_format="qwen3-vl") for name in ("R3", "R5")]
        >>> texts = ['[{"bbox_2d": [0, 0, 500, 400]}]', "[]"]
        >>> scored = score_columns(rewards, texts, boxes=[[[0, 0, 50, 50]], []], width=[100] * 2, height=[100] * 2)
        >>> scored["R3"], scored["R3/tp"], scored["R5/reason"]
        ([0.8, 0.2], [1, 0], ['1 of 1 found, mean IoU 0.80', 'nothing to find, and says so'])
    """
    batches = score_batches(rewards, completions, **columns)
    # The same texts were read for all.
    raws = batches[0].raws
    scores: dict[str, list[Any]] = {
        "status": [raw.status for raw in raws],
        "rejected": [raw.rejected for raw in raws],
        "boxes": batches[0].pred.counts.tolist(),
    }
    for reward, scored in zip(rewards, batches, strict=True):
        name = reward.__name__
        scores[name] = scored.outcomes.reward.tolist()
        scores |= {f"{name}/{part}": getattr(scored.outcomes, part).tolist() for part in (*PARTS, *COUNTS)}
        scores[f"{name}/reason"] = scored.reasons()
    return scores


def score_batches(
    rewards: Sequence[GroundingReward], completions: Sequence[Any], **columns: Any
) -> list[scoring.Scored]:
    """Score one batch by several rewards, reading every text once; returns the scored batch of each reward, in order.

    Raises:
        ValueError: as :func:`check_alike`, or as calling a reward.

    Example:
        >>> rewards = [get_reward(name, box_format="qwen3-vl") for name in ("R3", "R5")]
        >>> batches = score_batches(rewards, ["[]"], boxes=[[]], width=[100], height=[100])
        >>> [batch.outcomes.reward.tolist() for batch in batches]
        [[0.2], [0.2]]
    """
    check_alike(rewards)
    # As all read texts in the same way, the first one reads for all.
    first_reward = rewards[0]
    batch = first_reward._read(completions, columns, labelled=any(reward.compares_labels for reward in rewards))
    scored_batches = []
    for reward in rewards:
        # The first reward has refused formats without labels for itself alone.
        reward._refuse_lost_labels(batch.formats)
        scored_batches.append(scoring.score_batch(batch, reward))
    # The warnings about what was read, once for all.
    first_reward._notice_wrong_reading(scored_batches[0])
    return scored_batches


def check_alike(rewards: Sequence[GroundingReward]) -> None:
    """Refuse rewards that :func:`score_columns` cannot score together.

    Raises:
        ValueError: there is no reward, two share a name, or they read texts differently.

    Example:
        >>> check_alike([get_reward("R3", box_format="qwen3-vl"), get_reward("R4", box_format="qwen3-vl")])
    """
    names = [reward.__name__ for reward in rewards]
    if not names or len(set(names)) < len(names):
        raise ValueError(
            f"Expected one or more rewards of different names for `rewards`, got {', '.join(names) or 'none'}. "
            "Give each one once."
        )
    for reward in rewards[1:]:
        for setting in READING:
            expected_value, setting_value = getattr(rewards[0], setting), getattr(reward, setting)
            if setting_value != expected_value:
                raise ValueError(
                    f"Expected one `{setting}` for all rewards, got {expected_value!r} for {names[0]} and "
                    f"{setting_value!r} for {reward.__name__}. Texts are read once: build the rewards alike, or score "
                    "them one by one."
                )
