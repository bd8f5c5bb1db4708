"""The list of all checks and of the examiners that make them."""

from __future__ import annotations

from grounding_rewards.doctor.answer_checks import AnswerExaminer, GoldExaminer
from grounding_rewards.doctor.box_checks import BoxExaminer
from grounding_rewards.doctor.case import Examiner
from grounding_rewards.doctor.film_checks import ImageExaminer, RowExaminer
from grounding_rewards.doctor.label_checks import LabelExaminer
from grounding_rewards.doctor.repeat_checks import RepeatExaminer

STAGES: tuple[tuple[type[Examiner], ...], ...] = (
    (RowExaminer,),
    (BoxExaminer, ImageExaminer, RepeatExaminer, LabelExaminer, AnswerExaminer),
    (GoldExaminer,),
)
"""The examiners in stages: a row with an error does not reach the next stage."""

CHECKS = {check.name: check for stage in STAGES for examiner in stage for check in examiner.checks}
"""All checks by name."""
