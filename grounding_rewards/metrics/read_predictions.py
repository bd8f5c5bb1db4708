"""From a model's texts, or a dataset's rows alone, to predictions."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import chain
from typing import Any

import numpy as np

from grounding_rewards.boxes import as_box_array
from grounding_rewards.columns import OPTIONAL_BOX_COLUMNS, image_id, patient_of
from grounding_rewards.common.formatting import first_of
from grounding_rewards.metrics.prediction import UNNAMED, Prediction, is_read
from grounding_rewards.rewards import SPECIFICATION_REWARDS
from grounding_rewards.rewards.box_reward import Explanation
from grounding_rewards.rewards.completions import completion_text
from grounding_rewards.rewards.grounding import READING, GroundingReward, get_reward, score_batches

# Of the answers; more is likelier a wrong box format or a broken log than a model's failures.
_MOST_UNREAD = 0.1
# Columns that may hold the words of the prompt, the likeliest first: ours, then those of logs.
_QUESTIONS = ("asked", "prompt", "messages", "input", "problem", "question")
# Stands for an image, often as often as it has tokens, or begins and ends a turn.
_MARK = re.compile(r"<[^<>]*>")
# Columns that play no part in scoring, or are large.
_PASSED_OVER = ("prompt", "messages", "input", "asked", "image", "images", "completion_ids", "ground_truth")


def read_predictions(
    rows: Sequence[Mapping[str, Any]], texts: Sequence[Sequence[Any]], reward: GroundingReward
) -> list[Prediction]:
    """Read and score a model's answers to each image.

    Args:
        rows: n rows with `boxes`, `width` and `height`, and as far as known `labels`, `id`, `patient_id`,
            `ignore_boxes`, `reader_boxes`, `box_format`, `resized_width` and `resized_height`, and the prompt, see
            :func:`question_of`.
        texts: for each row its answers: first the one that is judged, then sampled ones. Of these only the reward is
            kept, whether they can be read, and how many boxes they have.
        reward: what the evaluation is about; R1 … R5 with their default parameters are taken beside it.

    Raises:
        ValueError: a row lacks a column, or holds something that is no box, label or size; two images have one name.

    Warns:
        SpaceWarning: where boxes on many images contradict the space or the order of the box format.

    Example:
        >>> row = {"id": "a", "boxes": [[0, 0, 50, 50]], "labels": ["mass"], "width": 100, "height": 100}
        >>> text = '[{"bbox_2d": [0, 0, 500, 400], "label": "mass"}]'
        >>> image = read_predictions([row], [[text]], get_reward("R3", box_format="qwen3-vl"))[0]
        >>> image.pred.tolist(), image.pred_labels, round(image.rewards["R3"], 2)
        ([[0.0, 0.0, 50.0, 40.0]], ('mass',), 0.8)
    """
    images = reference_images(rows)
    columns = row_columns(rows)
    rewards = [reward, *rewards_beside(reward)]
    # One batch of scores for each reward; every text is read once for all of them.
    batches = score_batches(rewards, [answers[0] for answers in texts], **columns)
    values = {scored_by.name: batch.reward.tolist() for scored_by, batch in zip(rewards, batches, strict=True)}
    samples = _sampled_answers(columns, [answers[1:] for answers in texts], reward)
    predictions = []
    # The first batch is that of `reward`, whose reasons are kept.
    for k, (image, parsed, reason) in enumerate(zip(images, batches[0].parsed(), batches[0].reasons(), strict=True)):
        prediction = replace(
            image,
            pred=parsed.boxes,
            pred_labels=parsed.labels,
            pred_scores=np.array(parsed.scores, dtype=np.float64),  # numpy reads None as NaN
            status=parsed.status,
            reason=reason,
            rejected=dict(parsed.rejected),
            broken=parsed.broken,
            text=completion_text(texts[k][0]),
            rewards={name: values[name][k] for name in sorted(values)},
            sampled_rewards=tuple(sample.reward for sample in samples[k]),
            sampled_read=tuple(is_read(sample.parsed.boxes, sample.parsed.status) for sample in samples[k]),
            sampled_boxes=tuple(len(sample.parsed.boxes) for sample in samples[k]),
        )
        predictions.append(prediction)
    return predictions


def rewards_beside(reward: GroundingReward) -> list[GroundingReward]:
    """R1 … R5 with their default parameters, less the one of this reward's name; they read texts as this reward does.

    Example:
        >>> [other.name for other in rewards_beside(get_reward("R3", beta=2.0))]
        ['R1', 'R2', 'R4', 'R5']
    """
    reading = {setting: getattr(reward, setting) for setting in READING}
    return [replace(get_reward(name), **reading) for name in SPECIFICATION_REWARDS if name != reward.name]


def _sampled_answers(
    columns: Mapping[str, Sequence[Any]], texts: Sequence[Sequence[Any]], reward: GroundingReward
) -> list[list[Explanation]]:
    """The sampled answers of each row, `texts`, as the reward scores them: all in one batch, then row by row again."""
    row_of_text = [k for k, row_texts in enumerate(texts) for _ in row_texts]
    samples: list[list[Explanation]] = [[] for _ in texts]
    if row_of_text:
        # The columns with the values of a row for each of its texts.
        text_columns = {name: [column[k] for k in row_of_text] for name, column in columns.items()}
        scored = reward.details(list(chain.from_iterable(texts)), **text_columns)
        for k, sample in zip(row_of_text, scored, strict=True):
            samples[k].append(sample)
    return samples


def reference_images(rows: Sequence[Mapping[str, Any]]) -> list[Prediction]:
    """The images of a dataset, each with its references and with an answer that has no box.

    Args:
        rows: see :func:`read_predictions`.

    Raises:
        ValueError: a row lacks `boxes`, `width` or `height`, or two images have one name.

    Example:
        >>> image = reference_images([{"boxes": [[0, 0, 5, 5]], "labels": ["mass"], "width": 10, "height": 10}])[0]
        >>> image.id, image.gt.tolist(), image.gt_labels, image.patient
        ('image 0', [[0.0, 0.0, 5.0, 5.0]], ('mass',), None)
    """
    require_columns(rows, [f"row {k}" for k in range(len(rows))])
    questions = [question_of(row) for row in rows]
    asked = asked_labels(questions, stated_labels(rows))
    images = [_reference(row, f"image {k}", questions[k], asked[k]) for k, row in enumerate(rows)]
    # The most frequent name; without images no name is there twice.
    name, times = Counter(image.id for image in images).most_common(1)[0] if images else ("", 1)
    if times > 1:
        raise ValueError(f"Expected a name of its own for every image, got `id` {name!r} {times} times. Rename them.")
    return images


def require_columns(rows: Sequence[Mapping[str, Any]], row_names: Sequence[str]) -> None:
    """Refuse rows without boxes, width or height, which every measure needs.

    Args:
        rows: one for each image.
        row_names: where each stands, such as `row 3`, for the message.

    Raises:
        ValueError: rows lack `boxes`, `width` or `height`; the first three are named.
    """
    for column in ("boxes", "width", "height"):
        lacking = [k for k, row in enumerate(rows) if row.get(column) is None]
        if lacking:
            first_rows = first_of([f"{row_names[k]} (id {rows[k].get('id', '-')})" for k in lacking])
            raise ValueError(
                f"Expected a column `{column}` for every image, got none for {len(lacking)} of {len(rows)}: "
                f"{first_rows}. Add it, or name the dataset that has it with --dataset."
            )


def stated_labels(rows: Iterable[Mapping[str, Any]]) -> set[str]:
    """The labels that rows state for their boxes; not every box, and not every row, has to state them.

    Example:
        >>> stated_labels([{"labels": ["mass", None]}, {"labels": None}, {}])
        {'mass'}
    """
    labels_of_rows = [row["labels"] for row in rows if row.get("labels") is not None]
    return {label for labels in labels_of_rows for label in labels if label is not None}


def named_labels(row: Mapping[str, Any]) -> tuple[str, ...]:
    """The label of each box of a row; `finding` for a box without a label.

    Example:
        >>> named_labels({"boxes": [[0, 0, 5, 5]]}), named_labels({"boxes": [[0, 0, 5, 5]], "labels": ["mass"]})
        (('finding',), ('mass',))
    """
    labels = row.get("labels")
    if labels is None:
        labels = [None] * len(row["boxes"])
    return tuple(UNNAMED if label is None else str(label) for label in labels)


def asked_labels(questions: Iterable[str | None], labels: Iterable[str]) -> list[tuple[str, ...]]:
    """The labels that each question names, whatever their case, in the order of the alphabet.

    Args:
        questions: of :func:`question_of`, in lower case; None asks for nothing by name.
        labels: all that may be asked for.

    Example:
        >>> asked_labels(["find each nodule.", "find any mass, nodule.", None], ["mass", "nodule", ""])
        [('nodule',), ('mass', 'nodule'), ()]
    """
    # A blank label would be found in every question.
    named = sorted(label for label in map(str, labels) if label.strip())

    @cache
    def labels_in(words: str) -> tuple[str, ...]:
        """The labels that these words name."""
        return tuple(label for label in named if label.casefold() in words)

    return [labels_in(question or "") for question in questions]


def question_of(row: Mapping[str, Any]) -> str | None:
    """The words of a row's prompt in lower case, without tags such as `<image>` and without the model's answers.

    Args:
        row: with `asked`, `prompt`, `messages`, `input`, `problem` or `question`, of which the first that has words is
            taken: a text, or messages as chats have them.

    Returns:
        The words with one space between them; None if there are none.

    Example:
        >>> question_of({"messages": [{"role": "user", "content": "<image>Where is the  Heart?"}]})
        'where is the heart?'
        >>> question_of({"id": 7}) is None
        True
    """
    for name in _QUESTIONS:
        words = _MARK.sub(" ", _words(row.get(name))).casefold().split()
        if words:
            return " ".join(words)
    return None


def _words(content: Any) -> str:
    """The text of a prompt: a text as it is, or the texts in messages, or in the parts of one; empty for others."""
    if isinstance(content, str):
        return content
    if isinstance(content, Mapping):
        # A message has `content`, a part of one `text`; the model's answer is no part of the question.
        is_answer = content.get("role") == "assistant"
        return "" if is_answer else _words(content.get("content") or content.get("text"))
    # A table read from parquet has arrays of messages.
    if isinstance(content, Sequence | np.ndarray):
        # Texts side by side are no prompt: a dataset may have a column of this name that is something else.
        return " ".join(_words(part) for part in content if isinstance(part, Mapping))
    return ""


def _reference(row: Mapping[str, Any], name: str, question: str | None, asked: tuple[str, ...]) -> Prediction:
    """The image of a row with an answer that has no box.

    `name` is its id where the row states no id; `question` and `asked` are the words of its prompt, and the labels that
    these name.
    """
    path = row.get("image_path")
    return Prediction(
        id=image_id(row, name),
        width=float(row["width"]),
        height=float(row["height"]),
        gt=as_box_array(row["boxes"], "boxes"),
        gt_labels=named_labels(row),
        ignore=as_box_array([] if row.get("ignore_boxes") is None else row["ignore_boxes"], "ignore_boxes"),
        patient=patient_of(row),
        image=None if path is None else str(path),
        view=str(row["view"]) if row.get("view") else None,
        source=str(row["source"]) if row.get("source") else None,
        asked=asked,
        question=question,
        status="empty",
    )


def row_columns(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """The columns that rewards can read, by name, a value for each row.

    They are those in which every row has a value, and `OPTIONAL_BOX_COLUMNS`, with None for a row without a value; less
    those that play no part in scoring, such as prompts and images.
    """
    columns = {}
    for name in dict.fromkeys(chain.from_iterable(rows)):
        values = [row.get(name) for row in rows]
        is_complete = all(value is not None for value in values)
        if name not in _PASSED_OVER and (is_complete or name in OPTIONAL_BOX_COLUMNS):
            columns[name] = values
    return columns


def reading_notes(images: Sequence[Prediction]) -> list[str]:
    """A note if more than one answer in ten has neither a box nor a statement that there is none; else no note.

    Example:
        >>> print(*reading_notes([Prediction("a", 9, 9, text="?", status="unparseable")]))
        1 of 1 answers cannot be read, as if they had no boxes: unparseable 1. The first is to 'a'. Is the \
box format the model's? `grounding-rewards inspect` shows what was read.
    """
    unread = [image for image in images if not is_read(image.pred, image.status)]
    if len(unread) <= _MOST_UNREAD * len(images):
        return []
    causes = ", ".join(f"{name} {n}" for name, n in Counter(image.status for image in unread).most_common())
    return [
        f"{len(unread)} of {len(images)} answers cannot be read, as if they had no boxes: {causes}. The first is to "
        f"{unread[0].id!r}. Is the box format the model's? `grounding-rewards inspect` shows what was read."
    ]
