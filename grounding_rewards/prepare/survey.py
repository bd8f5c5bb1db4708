"""The first pass, over tables alone: findings, patients, readers, and what makes a dataset unusable."""

from __future__ import annotations

import hashlib
import warnings
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from grounding_rewards.common.package_warning import PackageWarning
from grounding_rewards.data.annotated_image import AnnotatedImage
from grounding_rewards.data.dataset_columns import CarriedColumns
from grounding_rewards.data.prompts import prompt_order
from grounding_rewards.data.readers import check_readers, image_readers
from grounding_rewards.data.splits import (
    SHARES,
    TRAIN,
    PatientSplits,
    SplitRule,
    drawn_sentence,
    holds_out,
    patient_column,
    patient_of_image,
    split_rule,
)
from grounding_rewards.prepare.settings import PrepareSettings, check_split_name
from grounding_rewards.prepare.split_duplicates import DuplicateGroups
from grounding_rewards.prepare.tasks import TaskPlan, finding_example, is_present, without_small_boxes


@dataclass(frozen=True)
class Survey:
    """Facts about all images that the examples depend on.

    Attributes:
        images: Number of images.
        digest: Hash of all images, so that a continued run notices other images.
        facts: What the manifest says besides, under its keys; `pipeline` adds to it.
        patient_splits: The dataset's own split of each patient, if any.
        rule: Whether the dataset's own splits hold, and the shares in which other images are drawn.
        has_ignored: Whether any image has regions to ignore.
        has_several_readers: Whether any image was read by several people.
        carried: The columns that are not the package's own.
        plan: For `tasks.task_examples`.
        own_splits: Names of the dataset's own splits.
        copied: Copies among the images; empty until `pipeline` has compared them.
    """

    images: int
    digest: str
    facts: dict[str, Any]
    patient_splits: dict[str, str]
    rule: SplitRule
    has_ignored: bool
    has_several_readers: bool
    carried: CarriedColumns
    plan: TaskPlan
    own_splits: frozenset[str]
    copied: DuplicateGroups = field(default_factory=DuplicateGroups)


def survey_images(images: Iterable[AnnotatedImage], settings: PrepareSettings) -> Survey:
    """Collect the facts of all images in one pass. Memory grows by one number per image and one entry per patient.

    Raises:
        ValueError: No images, an id twice, a patient in two splits, several readers and no merging strategy, a finding
            that no image has, no phrases for the task `phrase`, or boxes that all look like fractions.
    """
    labels, digest = settings.labels, hashlib.blake2b(digest_size=16)
    splits, boxes, seen = PatientSplits(), Counter[str](), set[int]()
    meant: str | None = None
    carried, names, patients = CarriedColumns(), set[str](), set[str]()
    # Images with a finding, and other images that are no negatives for it. Images with ignored regions never are.
    present, unclear = Counter[str](), Counter[str]()
    without_patient = without_split = count = ignored = 0
    small, farthest = Counter(boxes=0, images=0, without_other=0), 0.0
    has_phrases = has_several_readers = False
    for image in images:
        count += 1
        digest.update(repr(image).encode("utf-8", "surrogatepass"))
        # Hashes take a fraction of the memory of names.
        if (number := hash(image.id)) in seen:
            raise ValueError(f"Expected an id for every image, got a second one with the id {image.id!r}. Merge them.")
        seen.add(number)
        check_readers(image)
        several = len(image_readers(image))
        if settings.readers is None and several > 1:
            raise ValueError(
                f"Expected a merging strategy for readers, because {several} people read image {image.id}, got none. "
                "Their boxes side by side would count every finding several times: choose union, majority, consensus, "
                "any-of or ignore (--readers)."
            )
        patient = patient_of_image(image)
        splits.add(patient, image.split)
        if image.split is not None:
            check_split_name(image.split)
            names.add(image.split)
        farthest = max((farthest, *chain.from_iterable(image.boxes)))
        large = without_small_boxes(image, settings)
        boxes.update(large.labels)
        if large is not image:
            here, left = (sum(labels is None or label in labels for label in one.labels) for one in (image, large))
            small.update(boxes=here - left, images=left < here, without_other=left == 0 < here)
        carried.add(image.extra)
        if settings.task == "finding":
            for label in set(image.labels):
                state = is_present(finding_example(image, label, settings))
                present[label] += state is True
                unclear[label] += (state is not False) - bool(image.ignored)
        if patient is not None:
            patients.add(patient)
        elif meant is None:
            meant = patient_column(image.extra)
        without_patient += patient is None
        without_split += image.split is None
        ignored += bool(image.ignored)
        has_several_readers = has_several_readers or several > 1
        has_phrases = has_phrases or bool(image.phrases)
    if not count:
        raise ValueError("Expected at least one image, got none. Check the root and the split.")
    if 0 < farthest <= 1 and boxes:
        raise ValueError(
            f"Expected boxes in pixels in {settings.dataset}, got none beyond {farthest:g}: they look like fractions "
            "of the image. Multiply them by width and height; for csv, give --option frame=fraction."
        )
    if meant is not None:
        warnings.warn(
            f"The column {meant!r} of {settings.dataset} looks like the patient, but is not read: images of one "
            "may be in several splits. Rename it to patient_id.",
            PackageWarning,
            stacklevel=3,
        )
    if settings.splits_from == "dataset":
        splits.check()
    if settings.task == "phrase" and not has_phrases:
        raise ValueError(
            f"Expected phrases for the task phrase, got none in {settings.dataset}. Choose detection or finding."
        )
    rule = _rule(names, len(patients) + without_patient, settings)
    if settings.splits_from == "dataset" and not rule.own:
        said = drawn_sentence(settings.dataset, rule.shares, count, without_patient)
        # Only a dataset that names the split can be asked for it, so that nothing is drawn.
        undrawn = f", --split {TRAIN} draws none" if names else ""
        warnings.warn(f"{said} --split-shares draws others{undrawn}.", PackageWarning, stacklevel=3)
    vocabulary = _vocabulary(boxes, labels)
    keep = {}
    if settings.task == "finding":
        share = 0.5 if settings.negatives is None else settings.negatives
        keep = {label: _keep(present[label], count - ignored - unclear[label], share) for label in vocabulary}
    undecided = without_split if rule.own else count
    return Survey(
        images=count,
        digest=digest.hexdigest(),
        facts={
            "boxes_drawn": dict(sorted(boxes.items())),
            "small_boxes": dict(small),
            "images_without_patient": without_patient,
            "images_without_own_split": undecided,
            "images_drawn": undecided if sum(share > 0 for share in rule.shares.values()) > 1 else 0,
            "images_with_copies": 0,
            "negatives_left_out": 0,
            "agreement": None,
            "unreadable": [],
        },
        patient_splits=splits.known if rule.own else {},
        rule=rule,
        has_ignored=ignored > 0,
        has_several_readers=has_several_readers,
        carried=carried,
        plan=TaskPlan(settings, vocabulary, keep),
        own_splits=frozenset(names) if rule.own else frozenset(),
    )


def _rule(names: set[str], patients: int, settings: PrepareSettings) -> SplitRule:
    """As where images are used without `prepare`, unless a draw, one split or shares of one's own were asked for."""
    shares = dict(settings.shares)
    if settings.splits_from == "hash":
        return SplitRule(False, shares)
    if settings.split is not None:
        return SplitRule(True, {settings.split: 1.0})
    rule = split_rule(names, patients, shares)
    # Shares of one's own are drawn of a few patients too; those with a split keep it.
    is_asked = shares != SHARES and not holds_out(names)
    return SplitRule(True, shares) if rule.own and is_asked else rule


def _keep(present: int, absent: int, negatives: float) -> float:
    """The part of the images without a finding to keep, so that `negatives` is the share of negative rows."""
    # kept / (kept + present) = negatives
    wanted = present * negatives / (1.0 - negatives)
    return min(1.0, wanted / absent) if absent else 0.0


def _vocabulary(boxes: Counter[str], labels: tuple[str, ...] | None) -> tuple[str, ...]:
    known = prompt_order(boxes)
    if not known:
        raise ValueError("Expected at least one box in the dataset, got none. Check the root and the split.")
    if labels is None:
        return known
    for label in labels:
        if label not in boxes:
            raise ValueError(f"Expected findings of the dataset for labels, got {label!r}. It has: {', '.join(known)}.")
    return tuple(dict.fromkeys(labels))
