"""A block for the card of a model on the Hugging Face Hub: the figures of an evaluation as `model-index` and a table.

`model-index` has no field for intervals or baselines. Intervals are in the arguments of each metric (`interval_95`),
which the hub does not show, and in the table below; the table also has the baselines beside the model.

Source: https://huggingface.co/docs/hub/model-cards and ``huggingface_hub.EvalResult``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, NamedTuple

from grounding_rewards.exchange.names import model_name

if TYPE_CHECKING:
    from huggingface_hub import CardData, EvalResult

_TASK = "object-detection"
_DIGITS = 4


class Figure(NamedTuple):
    """A figure of an evaluation: its key and heading, the value and the ends of its 95 % interval."""

    key: str
    heading: str
    value: float
    low: float | None
    high: float | None


def card_figures(evaluation: Mapping[str, Any], system: str | None = None) -> list[Figure]:
    """The figures of one system of an evaluation; what was not measured is left out.

    Args:
        evaluation: the content of `evaluation.json`: ``systems`` by name, ``headings`` by key, if there are any.
        system: name of the system, None for the first, which is the model.

    Raises:
        ValueError: there is no such system, or nothing was measured.

    Example:
        >>> figures = {"mean_iou": {"value": 0.7, "low": 0.65, "high": 0.75}, "froc": {"value": None}}
        >>> card_figures({"systems": {"model": figures}, "headings": {"mean_iou": "mean IoU"}})
        [Figure(key='mean_iou', heading='mean IoU', value=0.7, low=0.65, high=0.75)]
    """
    systems = evaluation.get("systems")
    if not isinstance(systems, Mapping) or not systems:
        raise ValueError(
            "Expected figures under `systems` in evaluation.json, got none. Make it with `grounding-rewards evaluate`."
        )
    name = next(iter(systems)) if system is None else system
    if name not in systems:
        raise ValueError(f"Expected one of {', '.join(systems)} for --system, got {name!r}. Choose one of these.")
    figures = list(_measured(systems[name], evaluation.get("headings", {})))
    if not figures:
        raise ValueError(f"Expected figures of {name!r}, got none that was measured. Evaluate it on films with boxes.")
    return figures


def evaluated_model(evaluation: Mapping[str, Any]) -> str:
    """The name of the evaluated model without its folders, or that of the evaluated log.

    Example:
        >>> evaluated_model({"facts": {"model": "/data/runs/r4/checkpoint"}}), evaluated_model({"systems": {"log": {}}})
        ('r4/checkpoint', 'log')
    """
    model = (evaluation.get("facts") or {}).get("model")
    name: str = model_name(str(model)) if model else next(iter(evaluation.get("systems") or {}), "")
    return name or "model"


def model_card_block(evaluation: Mapping[str, Any], *, name: str | None = None, system: str | None = None) -> str:
    """The YAML metadata of a model card, and below it a table of the figures with their intervals.

    Args:
        evaluation: the content of `evaluation.json`.
        name: of the model; None takes that of :func:`evaluated_model`.
        system: as for :func:`card_figures`.

    Raises:
        ValueError: as :func:`card_figures`.
        ImportError: huggingface_hub is not installed; it comes with transformers.

    Example:
        >>> figures = {"mean_iou": {"value": 0.7, "low": 0.65, "high": 0.75}}
        >>> systems = {"model": figures, "constant box": {"mean_iou": {"value": 0.6}}}
        >>> facts = {"model": "mine", "dataset": "vindr", "split": "test", "films": 20, "patients": 9}
        >>> print(model_card_block({"systems": systems, "facts": facts}).split("---")[2].strip())
        ## Evaluation
        <BLANKLINE>
        vindr, test, 20 films of 9 patients, measured with grounding_rewards.
        <BLANKLINE>
        | figure | value | 95 % interval | constant box |
        |:--|--:|:--|--:|
        | mean iou | 0.7000 | 0.6500 to 0.7500 | 0.6000 |
    """
    try:
        from huggingface_hub.repocard_data import ModelCardData
    except ImportError as error:
        raise ImportError(
            "Expected huggingface_hub for a model card, got none. Install it with `pip install huggingface_hub`."
        ) from error
    facts, figures = evaluation.get("facts", {}), card_figures(evaluation, system)
    results = [_eval_result(figure, facts) for figure in figures]
    data = ModelCardData(model_name=name or evaluated_model(evaluation), eval_results=results)
    lines = ["## Evaluation", "", _measured_on(facts), "", *_table(figures, evaluation["systems"], system), ""]
    return with_metadata(data, "\n".join(lines))


def with_metadata(data: CardData, text: str) -> str:
    """A model card: the metadata as a block of YAML, and the text.

    Args:
        data: metadata, a ``huggingface_hub.CardData``.
        text: in Markdown.
    """
    return f"---\n{data.to_yaml().strip()}\n---\n\n{text}"


def table_cell(text: str) -> str:
    """Text that can stand in a cell of a table in Markdown.

    Example:
        >>> table_cell("one\\ntwo | three")
        'one two \\\\| three'
    """
    return " ".join(text.split()).replace("|", "\\|")


def _table(figures: Sequence[Figure], systems: Mapping[str, Any], system: str | None) -> list[str]:
    """The figures of a system with their intervals, beside those of the other systems."""
    own = next(iter(systems)) if system is None else system
    others = [name for name in systems if name != own]
    rows = [
        [
            table_cell(figure.heading),
            _value(figure.value),
            _interval(figure),
            *(_value(_number(systems[other].get(figure.key, {}).get("value"))) for other in others),
        ]
        for figure in figures
    ]
    header = ["figure", "value", "95 % interval", *map(table_cell, others)]
    rule = "|:--|--:|:--|" + "--:|" * len(others)
    return [f"| {' | '.join(header)} |", rule, *(f"| {' | '.join(row)} |" for row in rows)]


def _measured_on(facts: Mapping[str, Any]) -> str:
    """What was measured on which films, as far as the facts of the evaluation say."""
    films, patients = facts.get("films"), facts.get("patients")
    counted = f"{films} films" + (f" of {patients} patients" if isinstance(patients, int) else "") if films else ""
    intervals = f"intervals: {facts['intervals']}" if facts.get("intervals") else ""
    dataset = _last_part(facts.get("dataset"), "")
    parts = (dataset, str(facts.get("split") or ""), counted, intervals, "measured with grounding_rewards.")
    text = ", ".join(filter(None, parts))
    return text[0].upper() + text[1:] if text.startswith("measured") else text


def _value(value: float | None) -> str:
    return "–" if value is None else f"{value:.{_DIGITS}f}"


def _measured(figures: Mapping[str, Any], headings: Mapping[str, str]) -> Iterator[Figure]:
    for key, estimate in figures.items():
        value, low, high = (_number(estimate.get(part)) for part in ("value", "low", "high"))
        if value is not None:
            yield Figure(key, headings.get(key, key.replace("_", " ")), value, low, high)


def _number(value: Any) -> float | None:
    return None if value is None or not math.isfinite(value) else float(value)


def _eval_result(figure: Figure, facts: Mapping[str, Any]) -> EvalResult:
    from huggingface_hub import EvalResult

    dataset = _last_part(facts.get("dataset"), "dataset")
    ends = [round(end, _DIGITS) for end in (figure.low, figure.high) if end is not None]
    return EvalResult(
        task_type=_TASK,
        dataset_type=dataset,
        dataset_name=dataset,
        dataset_split=facts.get("split") or None,
        metric_type=figure.key,
        metric_name=figure.heading,
        metric_value=round(figure.value, _DIGITS),
        metric_args={"interval_95": ends} if len(ends) == 2 else None,
    )


def _last_part(name: Any, otherwise: str) -> str:
    """The name of a folder or of a repository without its parents: paths stay private."""
    return PurePosixPath(Path(str(name)).as_posix()).name if name else otherwise


def _interval(figure: Figure) -> str:
    if figure.low is None or figure.high is None:
        return "–"
    return f"{figure.low:.{_DIGITS}f} to {figure.high:.{_DIGITS}f}"
