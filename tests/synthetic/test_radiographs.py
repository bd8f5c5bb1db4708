"""Drawn radiographs: the same image for an index whatever happened before, boxes that fit, phrases that are true."""

import itertools
import subprocess
import sys
from collections import Counter, defaultdict
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("PIL", reason="needs the train extra")

from grounding_rewards.synthetic.radiographs import (
    FINDINGS,
    PRESETS,
    SPLITS,
    draw_radiograph,
    image_indices,
    paint_radiograph,
    plan_radiograph,
    synthetic_dataset,
)

INDICES = range(60)


@pytest.fixture(scope="module")
def images():
    return [(plan_radiograph(index), draw_radiograph(index)) for index in INDICES]


def coarse(plan, factor: int):
    """The same image with fewer pixels."""
    rows, columns = plan.rows // factor, plan.columns // factor
    return replace(plan, rows=rows, columns=columns, spacing=factor * plan.spacing)


def pixels(image) -> np.ndarray:
    return np.asarray(image.image).astype(float)


class TestSameIndexSameImage:
    def test_in_a_fresh_process_and_in_another_order(self):
        code = (
            "from hashlib import sha256; from grounding_rewards.synthetic import draw_radiograph;"
            "images = {{index: draw_radiograph(index, 'pa-256') for index in {order}}};"
            "print([(sha256(images[index].image.tobytes()).hexdigest(), images[index].boxes) for index in [3, 4]])"
        )
        runs = [
            subprocess.run([sys.executable, "-c", code.format(order=order)], capture_output=True, text=True, check=True)
            for order in ("(3, 4)", "(9, 4, 1, 3)")
        ]
        assert runs[0].stdout == runs[1].stdout != ""

    def test_other_seeds_and_presets_give_other_images(self):
        sources = [draw_radiograph(3, "pa-256", seed=seed).image.tobytes() for seed in range(3)]
        assert len(set(sources)) == 3
        assert len({draw_radiograph(index, "pa-256").image.tobytes() for index in range(6)}) == 6
        assert plan_radiograph(3, "mixed-512").anatomy != plan_radiograph(3, "mixed-1024").anatomy

    def test_what_an_index_shows_stays_what_it_is(self):
        # Written down from this program: a change means that published numbers no longer hold.
        image = draw_radiograph(3)
        assert (image.view, image.image.size) == ("AP", (480, 480))
        assert image.phrases == ("moderate right pleural effusion", "nodule in the right middle zone")
        assert image.boxes == ((98, 227, 177, 320), (185, 158, 218, 190))


class TestBoxes:
    @pytest.mark.parametrize("preset", PRESETS)
    @settings(max_examples=12)
    @given(index=st.integers(0, 10**9))
    def test_they_lie_inside_the_image(self, preset, index):
        image = paint_radiograph(coarse(plan_radiograph(index, preset), 4))
        width, height = image.image.size
        for x1, y1, x2, y2 in image.boxes:
            assert 0 <= x1 < x2 <= width
            assert 0 <= y1 < y2 <= height
        assert len(image.boxes) == len(image.labels) == len(image.phrases)
        assert all(label in phrase for label, phrase in zip(image.labels, image.phrases, strict=True))

    @pytest.mark.parametrize("label", FINDINGS)
    def test_a_finding_changes_its_box_and_hardly_anything_else(self, label):
        plans = (plan_radiograph(index) for index in itertools.count())
        cases = ((coarse(plan, 2), finding) for plan in plans for finding in plan.findings if finding.label == label)
        shares = []
        for plan, finding in itertools.islice(cases, 6):
            healthy = pixels(paint_radiograph(replace(plan, findings=(), noise=0.0)))
            image = paint_radiograph(replace(plan, findings=(finding,), noise=0.0))
            ((x1, y1, x2, y2),) = image.boxes
            change = np.abs(pixels(image) - healthy)
            # The blur of half a pixel crosses the edge
            inside = change[max(y1 - 1, 0) : y2 + 1, max(x1 - 1, 0) : x2 + 1]
            shares.append(inside.sum() / change.sum())
            assert inside.max() >= 12, plan.id
            # The box is no larger than what changed; a normal heart hides some of an enlarged one
            seen = change > 0.15 * inside.max()
            columns, rows = np.flatnonzero(seen.any(axis=0)), np.flatnonzero(seen.any(axis=1))
            assert columns[-1] - columns[0] + 1 >= 0.65 * (x2 - x1), plan.id
            assert rows[-1] - rows[0] + 1 >= 0.65 * (y2 - y1), plan.id
        assert min(shares) > 0.88
        assert np.mean(shares) > 0.96

    def test_a_finding_under_the_collimators_edge_ends_there(self, images):
        plan = next(plan for plan, _ in images if any(finding.label == "cardiomegaly" for finding in plan.findings))
        half = plan.columns * plan.spacing / 2
        closed = replace(plan, occluders=plan.occluders._replace(margins=(half, 0.0, 0.0, 0.0)))
        image = paint_radiograph(closed)
        assert all(box[0] >= plan.columns // 2 - 1 for box in image.boxes)
        hidden = replace(plan, occluders=plan.occluders._replace(margins=(2 * half, 0.0, 0.0, 0.0)))
        assert paint_radiograph(hidden).boxes == paint_radiograph(hidden).labels == ()


class TestFindings:
    def test_how_many(self, images):
        kinds = Counter(label for _, image in images for label in set(image.labels))
        assert set(kinds) == set(FINDINGS)
        plans = [plan_radiograph(index) for index in range(1000)]
        normal = sum(not plan.findings for plan in plans) / 1000
        assert 0.2 < normal < 0.3
        for plan in plans:
            counts = Counter(finding.label for finding in plan.findings)
            assert [label for label, times in counts.items() if times > 1] in ([], ["nodule"])

    def test_sizes_follow_the_public_metrics(self):
        # Medians of NIH ChestX-ray14's BBox_List_2017.csv as shares of its images of 1024 pixels, times 400 mm
        sizes = defaultdict(list)
        for index in range(1500):
            for finding in plan_radiograph(index).findings:
                sizes[finding.label].append((finding.width, finding.height))
        medians = {label: np.median(values, axis=0) for label, values in sizes.items()}
        assert medians["nodule"][0] == pytest.approx(0.8 * 0.068 * 400, rel=0.12)
        assert medians["mass"][0] == pytest.approx(0.8 * 0.121 * 400, rel=0.15)
        assert medians["consolidation"] == pytest.approx([0.223 * 400, 0.269 * 400], rel=0.15)
        assert medians["pleural effusion"][1] == pytest.approx(0.271 * 400, rel=0.2)
        assert medians["pneumothorax"][1] == pytest.approx(0.201 * 400, rel=0.2)
        # Definitions: a nodule is smaller than 30 mm, a mass is not
        assert max(map(max, sizes["nodule"])) < 30 < min(map(min, sizes["mass"]))

    def test_an_enlarged_heart_takes_more_than_half_of_the_chest(self, images):
        for plan, image in images:
            boxes = [box for box, label in zip(image.boxes, image.labels, strict=True) if label == "cardiomegaly"]
            assert all((box[2] - box[0]) * plan.spacing > plan.anatomy.half_width for box in boxes)
            assert plan.anatomy.heart_ratio < 0.52


class TestPhrases:
    def test_side_and_zone_are_where_the_box_is(self, images):
        said = Counter()
        for plan, image in images:
            middle = plan.anatomy.middle / plan.spacing
            top = plan.anatomy.top / plan.spacing
            for (x1, y1, x2, y2), phrase in zip(image.boxes, image.phrases, strict=True):
                x, y = (x1 + x2) / 2, (y1 + y2) / 2
                words = phrase.split()
                # The patient's right is in the left half of the image
                if "right" in words:
                    assert x < middle, (plan.id, phrase)
                if "left" in words:
                    assert x > middle, (plan.id, phrase)
                if "zone" in words:
                    lung = min(
                        plan.anatomy.lungs,
                        key=lambda lung: abs(lung.middle + lung.side * lung.half_width / 2 - x * plan.spacing),
                    )
                    share = (y - top) / ((lung.base - lung.dome) / plan.spacing - top)
                    third = ("upper", "middle", "lower")[min(2, int(share * 3))]
                    assert third in words, (plan.id, phrase)
                    said[third] += 1
        assert set(said) == {"upper", "middle", "lower"}

    def test_markers_lie_on_the_side_that_they_name(self, images):
        letters = Counter()
        for plan, _ in images:
            if plan.occluders.marker:
                letter, x, _ = plan.occluders.marker
                letters[letter] += 1
                assert (x < plan.anatomy.middle) == (letter == "R")
        assert min(letters["R"], letters["L"]) > 10


class TestDataset:
    def test_splits_share_nothing(self):
        # The largest sizes that can be asked for.
        ranges = [image_indices(split, 10_000_000) for split in SPLITS]
        assert all(one.stop <= other.start for one, other in itertools.pairwise(ranges))
        assert len({row_id for split in SPLITS for row_id in synthetic_dataset(split, 2)["id"]}) == 6

    @pytest.mark.parametrize(
        ("call", "message"),
        [
            # would run into the next split
            (lambda: synthetic_dataset("train", 10_000_001), "Expected 1 to 10000000 for n"),
            (lambda: draw_radiograph(-1), "Expected numbers from 0 up for index and seed, got -1 and 0"),
        ],
    )
    def test_wrong_requests_are_refused_at_once(self, call, message):
        with pytest.raises(ValueError, match=message):
            call()

    def test_columns_hold_what_the_checks_ask_for(self):
        pytest.importorskip("datasets")
        from grounding_rewards import get_reward
        from grounding_rewards.data.checks import check_dataset
        from grounding_rewards.prepare.load import load_split

        dataset = synthetic_dataset("validation", 6, preset="mixed-512")
        check_dataset(dataset, get_reward("R4", box_format="qwen3-vl"))
        row = dataset[0]
        assert row["image"].size == (row["width"], row["height"])
        assert load_split("synthetic:mixed-512", "validation", max_images=6)["boxes"] == dataset["boxes"]
