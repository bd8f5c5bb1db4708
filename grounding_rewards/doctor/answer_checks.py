"""Checks of the answers: can a model learn them, is it asked for them, can it write them?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

from grounding_rewards.data.checks import gold_problems
from grounding_rewards.data.prompt_claims import prompt_contradictions, told_box, told_count, told_nothing
from grounding_rewards.data.prompts import gold_answer, prompt_problem
from grounding_rewards.doctor.box_defects import box_defect, is_placeholder
from grounding_rewards.doctor.case import Bucket, Case, Examiner
from grounding_rewards.doctor.defects import CHECKS, Defect, Problem, named
from grounding_rewards.doctor.model import ASSUMED_MAX_PIXELS
from grounding_rewards.doctor.raw_rows import Drawing, ImageRow
from grounding_rewards.parsing import BoxFormat
from grounding_rewards.rewards.grounding import GroundingReward, get_reward

#: Shortest side, in pixels that the model sees, of a box that can be learned.
LEAST_SIDE = 4.0
#: Least part of the image's area: a square of 10 pixels on an image of 1024.
LEAST_SHARE = 1e-4
_MOST_NEGATIVES = 0.95
# Of prompts that say a number, so large a part says that of the boxes; of more labels none is looked for in prompts.
_LEAST_TOLD, _MOST_NAMED = 0.8, 100
_FEWEST_IMAGES = 10
# Images whose right answers are scored together; their images are held meanwhile.
_ROWS_AT_ONCE = 64


class AnswerExaminer(Examiner):
    """Negative images, small boxes, prompts and box formats. Also fills the metrics of the case."""

    checks = named(
        *("negatives", "small-boxes", "prompt-missing", "prompt-format", "answer-in-prompt", "count-in-prompt"),
        *("prompt-contradiction", "box-format"),
    )

    def __init__(self, case: Case) -> None:
        super().__init__(case)
        self._assumed_resize = self._has_format = False
        self._without_prompt = 0
        # Images by the number that their prompt says and that of their boxes; by a label that it does not name, and the
        # one it does.
        self._counts: dict[tuple[int, int], Bucket] = {}
        self._unnamed: dict[tuple[str, str], Bucket] = {}
        self._named: set[str] = set()

    def look(self, row: ImageRow) -> Iterator[Problem]:
        model = self.case.model
        box_format, named = model.format_of(row), row.columns.get("box_format")
        self._has_format |= box_format is not None
        if box_format is None and named is not None:
            yield Problem("box-format", f"box_format is {str(named)!r:.60}")
        self._without_prompt += row.prompt is None
        if problem := prompt_problem(row.columns.get("prompt")):
            yield Problem("prompt-missing", problem)
        elif row.prompt and box_format is not None and (found := list(prompt_contradictions(row.prompt, box_format))):
            yield Problem("prompt-format", "; ".join(found))
        if row.prompt and row.size is not None:
            boxes = [box for drawing in row.answers for box in drawing.boxes if box_defect(box, row.size) is None]
            if told := told_box(row.prompt, boxes, row.size, row.resized_size):
                yield Problem("answer-in-prompt", f"the prompt says {told}")
        if row.prompt:
            yield from self._claims(row, row.prompt)
        if row.size is None:
            return
        self._assumed_resize |= model.resized(row) is None
        seen, size = model.seen_size(row), row.trusted_size
        self.case.totals["boxes"] += sum(len(drawing.boxes) for drawing in row.drawings)
        self.case.metrics.add(row, size, seen)
        if size is None:
            return
        for drawing in row.answers:
            for index, box in enumerate(drawing.boxes):
                if box_defect(box, size) is None and not is_placeholder(box, drawing.label(index)):
                    width, height = (box[2] - box[0]) * seen[0] / size[0], (box[3] - box[1]) * seen[1] / size[1]
                    if min(width, height) < LEAST_SIDE or width * height < LEAST_SHARE * seen[0] * seen[1]:
                        small = f"box {index} is {width:.1f} x {height:.1f} pixels of {seen[0]:g} x {seen[1]:g}"
                        yield Problem("small-boxes", drawing.prefix + small, drawing.name)

    def _claims(self, row: ImageRow, prompt: str) -> Iterator[Problem]:
        """What the prompt says of the findings: none, how many, which."""
        boxes, labels = row.answers[0].boxes, {one for one in row.answers[0].labels if isinstance(one, str)}
        if not boxes or any(is_placeholder(box, row.answers[0].label(k)) for k, box in enumerate(boxes)):
            return
        if told := told_nothing(prompt):
            yield Problem("prompt-contradiction", f"the prompt says {told!r:.80}, {len(boxes)} boxes are drawn")
        if (said := told_count(prompt)) is not None:
            detail = f"the prompt says {said}, {len(boxes)} boxes are drawn"
            self._counts.setdefault((said, len(boxes)), Bucket()).add(self.case, row, detail)
        known = self.case.metrics.labels
        if labels and len(known) <= _MOST_NAMED:
            words = prompt.casefold()
            self._named |= (here := {label for label in known.keys() | labels if label.casefold() in words})
            if here and not here & labels:
                detail = f"the prompt names {min(here)!r:.40}, the boxes are {min(labels)!r:.40}"
                self._unnamed.setdefault((min(labels), min(here)), Bucket()).add(self.case, row, detail)

    def _contradicted(self) -> Iterator[Bucket]:
        """Prompts that say another number or another finding, where other prompts say the right one."""
        if len({said for said, _ in self._counts}) > 1:
            yield from (bucket for (said, drawn), bucket in self._counts.items() if said != drawn)
        # Prompts that all ask for one finding are another task.
        if len({asked for _, asked in self._unnamed}) > 1:
            yield from (bucket for (label, _), bucket in self._unnamed.items() if label in self._named)

    def defects(self) -> Iterator[Defect]:
        wrong = list(self._contradicted())
        for check, more in ((CHECKS["prompt-contradiction"], wrong), (CHECKS["count-in-prompt"], self._told())):
            for number, bucket in enumerate(more):
                self.met[check.name][f"said {number}"] = bucket
        yield from super().defects()
        metrics = self.case.metrics
        images = sum(metrics.per_image.values())
        if images >= _FEWEST_IMAGES and not 0 < metrics.negatives <= _MOST_NEGATIVES * images:
            yield CHECKS["negatives"].defect(
                metrics.negatives, images, f"{metrics.negatives} of {images} images have no box."
            )

    def _told(self) -> list[Bucket]:
        """Images whose prompt says the number of their boxes; "one box for each finding", in all prompts, is none."""
        right = [bucket for (said, drawn), bucket in self._counts.items() if said == drawn]
        images = sum(bucket.count for bucket in self._counts.values())
        of_many = len(right) > 1 and sum(bucket.count for bucket in right) >= _LEAST_TOLD * images
        return right if of_many else []

    def assumptions(self) -> Iterator[str]:
        if self._assumed_resize:
            yield (
                f"Images reach the model with at most {ASSUMED_MAX_PIXELS:,} pixels (1280 patches of 28 x 28); give "
                "--model, or the columns resized_width and resized_height, for the real size."
            )
        if self._without_prompt:
            yield (
                f"{self._without_prompt} of {self.case.totals['images']} rows have no prompt: training and evaluation "
                "ask for every label of the dataset, in the words of `grounding-rewards prepare`."
            )

    def unchecked(self) -> dict[str, str]:
        unchecked: dict[str, str] = {}
        if not self._has_format:
            why = "no box format: give --box-format, or add the column box_format"
            unchecked |= dict.fromkeys(("prompt-format", "gold-length", "gold-reward"), why)
        return unchecked


class GoldExaminer(Examiner):
    """Length and reward of right answers. Expects rows without errors."""

    checks = named("gold-length", "gold-reward")

    def __init__(self, case: Case) -> None:
        super().__init__(case)
        self._waiting: list[tuple[ImageRow, BoxFormat]] = []

    def add(self, row: ImageRow) -> bool:
        """Right answers are scored many at once, which is far faster; no stage follows that would need the errors."""
        box_format = self.case.model.format_of(row)
        if box_format is not None:
            self._waiting.append((row, box_format))
        if len(self._waiting) >= _ROWS_AT_ONCE:
            self._weigh()
        return False

    def _weigh(self) -> None:
        """Count the problems of the rows that wait."""
        rows, self._waiting = self._waiting, []
        answers = [
            (box_format, _gold_columns(row, drawing, self.case.model.seen_size(row)))
            for row, box_format in rows
            for drawing in row.answers
        ]
        lost: list[list[str]] = [[] for _ in answers]
        for box_format in {box_format for box_format, _ in answers}:
            places = [k for k, (one, _) in enumerate(answers) if one == box_format]
            found = gold_problems([answers[k][1] for k in places], _reward(box_format))
            for k, problems in zip(places, found, strict=True):
                lost[k] = problems
        results = zip(answers, lost, strict=True)
        for row, _ in rows:
            self.count(row, self._problems([(drawing, *next(results)) for drawing in row.answers]))

    def _problems(
        self, answers: Sequence[tuple[Drawing, tuple[BoxFormat, dict[str, Any]], list[str]]]
    ) -> Iterator[Problem]:
        """The problems of an image: it counts once, not once per reader."""
        model, long = self.case.model, []
        for drawing, (box_format, columns), _ in answers:
            tokens = model.tokens(gold_answer(columns, box_format), box_format)
            self.case.metrics.longest_gold = max(self.case.metrics.longest_gold, tokens)
            if tokens > model.max_completion_length:
                long.append(f"{drawing.prefix}{tokens} tokens, max_completion_length is {model.max_completion_length}")
        if long:
            yield Problem("gold-length", "; ".join(long))
        if lost := [drawing.prefix + "; ".join(found) for drawing, _, found in answers if found]:
            yield Problem("gold-reward", "; ".join(lost))

    def defects(self) -> Iterator[Defect]:
        self._weigh()
        longest, is_counted = self.case.metrics.longest_gold, self.case.model.counts_tokens
        for defect in super().defects():
            if defect.name != "gold-length":
                yield defect
            elif is_counted:
                yield replace(defect, found=f"The longest takes {longest} tokens.")
            else:
                # Only an estimate.
                yield replace(defect, severity="warning", found=f"The longest takes about {longest} tokens.")

    def assumptions(self) -> Iterator[str]:
        if self.case.metrics.longest_gold and not self.case.model.counts_tokens:
            yield ("Every digit of an answer is a token of its own, as in Qwen or Gemma; give --model to count them.")


def _gold_columns(row: ImageRow, drawing: Drawing, seen: tuple[float, float]) -> dict[str, Any]:
    return {
        "boxes": [list(box) for box in drawing.boxes],
        "labels": [str(label) for label in drawing.labels] if drawing.labels else None,
        "width": row.size[0] if row.size else None,
        "height": row.size[1] if row.size else None,
        "resized_width": seen[0],
        "resized_height": seen[1],
    }


@lru_cache(maxsize=64)
def _reward(box_format: BoxFormat) -> GroundingReward:
    return get_reward("R4", box_format=box_format)
