"""A block for the card of a model on the Hugging Face Hub: the metrics of an evaluation as `model-index` and a table.

`model-index` has no field for intervals or baselines. Intervals are in the arguments of each metric (`interval_95`),
which the hub does not show, and in the table below; the table also has the baselines next to the model.

Source: https://huggingface.co/docs/hub/model-cards and ``huggingface_hub.EvalResult``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grounding_rewards.common.formatting import NO_VALUE
from grounding_rewards.metrics.evaluation import StoredEvaluation
from grounding_rewards.metrics.intervals import Estimate

if TYPE_CHECKING:
    from huggingface_hub import CardData

_TASK = "object-detection"
_DIGITS = 4
_NOTHING = Estimate(math.nan, math.nan, math.nan)
_TEXT = """\
## Evaluation

{facts}

| metric | value | 95 % interval |{baselines}
|:--|--:|:--|{rules}
{rows}
"""
# The meaning of `--label-matching` for the metrics.
_LABEL_RULES = {
    "ignore": "a box is right by its place, whatever its label",
    "exact": "a box is right only under the finding's label",
    "synonyms": "a box is right only under a synonym of the finding's label",
}


def model_name(model: str) -> str:
    """The name of a model without its folders: the last part of its path, for a checkpoint the run's name too.

    Example:
        >>> model_name("Qwen/Qwen2.5-VL-3B-Instruct"), model_name("/data/runs/r4/checkpoint-50/")
        ('Qwen2.5-VL-3B-Instruct', 'r4/checkpoint-50')
    """
    path = Path(model)
    return f"{path.parent.name}/{path.name}" if path.name.startswith("checkpoint") and path.parent.name else path.name


def evaluated_model(evaluation: StoredEvaluation) -> str:
    """The name of the evaluated model without its folders, or that of the evaluated log.

    Example:
        >>> evaluated_model(StoredEvaluation({"model": "/data/runs/r4/checkpoint"}))
        'r4/checkpoint'
        >>> evaluated_model(StoredEvaluation(systems={"log": {}}))
        'log'
    """
    model = evaluation.facts.get("model")
    name = model_name(str(model)) if model else next(iter(evaluation.systems), "")
    return name or "model"


def model_card_block(evaluation: StoredEvaluation, *, name: str | None = None) -> str:
    """The YAML metadata of a model card, and below it a table of the metrics with their intervals.

    Args:
        evaluation: of :func:`grounding_rewards.metrics.evaluation.read_evaluation`; its first system is the model.
        name: of the model; None takes that of :func:`evaluated_model`.

    Raises:
        ValueError: nothing was measured.
        ImportError: huggingface_hub is not installed; it comes with transformers.

    Example:
        >>> metrics = {"mean_iou": Estimate(0.7, 0.65, 0.75)}
        >>> systems = {"model": metrics, "constant box": {"mean_iou": Estimate(0.6, 0.5, 0.7)}}
        >>> facts = {"dataset": "vindr", "split": "test", "images": 20, "patients": 9, "label matching": "ignore"}
        >>> print(model_card_block(StoredEvaluation(facts, systems)).split("---")[2].strip())
        ## Evaluation
        <BLANKLINE>
        vindr, test, 20 images of 9 patients, a box is right by its place, whatever its label, measured with \
grounding_rewards.
        <BLANKLINE>
        | metric | value | 95 % interval | constant box |
        |:--|--:|:--|--:|
        | mean iou | 0.7000 | 0.6500 to 0.7500 | 0.6000 |
    """
    try:
        from huggingface_hub import EvalResult, ModelCardData
    except ImportError as error:
        raise ImportError(
            "Expected huggingface_hub for a model card, got none. Install it with `pip install huggingface_hub`."
        ) from error
    facts, systems = evaluation.facts, evaluation.systems
    model, *baselines = systems or {"": {}}
    metrics = {key: estimate for key, estimate in systems.get(model, {}).items() if not math.isnan(estimate.value)}
    if not metrics:
        raise ValueError(
            "Expected metrics that were measured under `systems` in evaluation.json, got none. Evaluate the model on "
            "images with boxes with `grounding-rewards evaluate`."
        )
    dataset = _last_part(facts.get("dataset"), "dataset")
    results, rows = [], []
    for key, estimate in metrics.items():
        heading = evaluation.headings.get(key, key.replace("_", " "))
        value, low, high = (round(number, _DIGITS) for number in estimate)
        has_ends = not math.isnan(low) and not math.isnan(high)
        results.append(
            EvalResult(
                task_type=_TASK,
                dataset_type=dataset,
                dataset_name=dataset,
                dataset_split=facts.get("split") or None,
                metric_type=key,
                metric_name=heading,
                metric_value=value,
                metric_args={"interval_95": [low, high]} if has_ends else None,
            )
        )
        interval = f"{_number(low)} to {_number(high)}" if has_ends else NO_VALUE
        baseline_cells = [_number(systems[baseline].get(key, _NOTHING).value) for baseline in baselines]
        rows.append(f"| {' | '.join([table_cell(heading), _number(value), interval, *baseline_cells])} |")
    text = _TEXT.format(
        facts=_measured_on(facts),
        baselines="".join(f" {table_cell(baseline)} |" for baseline in baselines),
        rules="--:|" * len(baselines),
        rows="\n".join(rows),
    )
    return with_metadata(ModelCardData(model_name=name or evaluated_model(evaluation), eval_results=results), text)


def _number(value: float) -> str:
    return NO_VALUE if math.isnan(value) else f"{value:.{_DIGITS}f}"


def with_metadata(data: CardData, text: str) -> str:
    """A model card: the metadata as a block of YAML, and the text.

    Args:
        data: metadata, a ``huggingface_hub.CardData``.
        text: in Markdown.
    """
    return f"---\n{data.to_yaml().strip()}\n---\n\n{text}"


def table_cell(text: str) -> str:
    """Text that fits into a cell of a table in Markdown.

    Example:
        >>> table_cell("one\\ntwo | three")
        'one two \\\\| three'
    """
    return " ".join(text.split()).replace("|", "\\|")


def _measured_on(facts: Mapping[str, Any]) -> str:
    """The dataset, the images and the rules of the evaluation, as far as its facts say."""
    images, patients = facts.get("images"), facts.get("patients")
    parts = [_last_part(facts.get("dataset"), ""), str(facts.get("split") or "")]
    if images:
        parts.append(f"{images} images" + (f" of {patients} patients" if isinstance(patients, int) else ""))
    parts.append(_LABEL_RULES.get(str(facts.get("label matching")), ""))
    if facts.get("intervals"):
        parts.append(f"intervals: {facts['intervals']}")
    facts_text = ", ".join(filter(None, parts))
    return f"{facts_text}, measured with grounding_rewards." if facts_text else "Measured with grounding_rewards."


def _last_part(name: Any, otherwise: str) -> str:
    """The name of a folder or of a repository without its parents: paths stay private."""
    return Path(str(name)).name if name else otherwise
