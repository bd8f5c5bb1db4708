"""Easy images first: which image enters when, which is drawn when, and that a resumed run draws the same."""

from __future__ import annotations

import json
from collections import Counter
from itertools import chain

import numpy as np
import pytest
from datasets import Dataset
from hypothesis import given
from hypothesis import strategies as st

from grounding_rewards.training.arguments import parse_grpo_arguments
from grounding_rewards.training.curriculum import Curriculum, Stages, entering_stages
from grounding_rewards.training.extras import read_extra
from grounding_rewards.training.resume import EpochSampler
from grounding_rewards.training.run import train_grpo
from tests.training.runs import GRPO, history, same_weights, stopped_copy, weights, words

pytestmark = pytest.mark.training

BOX, SMALL = [0, 0, 50, 50], [0, 0, 5, 5]


def images(*boxes, **columns):
    n = len(boxes)
    rows = {"id": [f"f{k}" for k in range(n)], "boxes": list(boxes), "width": [100] * n, "height": [100] * n}
    return Dataset.from_dict({**rows, **columns})


def stages_of(dataset, seed=0, **curriculum):
    return entering_stages(dataset, Curriculum(**{"stages": 2, **curriculum}), seed).tolist()


class TestEntering:
    @pytest.mark.parametrize(
        ("dataset", "curriculum", "found"),
        [
            (images([BOX] * 4, [BOX], [BOX] * 2, [BOX] * 3), {"by": "boxes"}, [1, 0, 0, 1]),
            # the area of the smallest box, as a share of the image: the same box on an image of four times the area
            (images([BOX, SMALL], [BOX], [[0, 0, 20, 20]], [SMALL]), {"by": "area"}, [1, 0, 0, 1]),
            (images([BOX], [BOX], width=[200, 100], height=[200, 100]), {"by": "area"}, [1, 0]),
            (images(*[[BOX]] * 4, pass_rate=[0.1, 0.9, 0.5, 0.4]), {"by": "pass_rate"}, [1, 0, 0, 1]),
            (images([BOX], [BOX], hits=[0, 1]), {"by": "pass_rate", "column": "hits"}, [1, 0]),
            # measured negatives are ordered as measured
            (images([BOX], [], [BOX], [], pass_rate=[0.0, 1.0, 0.9, 0.1]), {"by": "pass_rate"}, [1, 0, 0, 1]),
            # several readers count as their mean
            (
                images([], [BOX] * 2, [BOX] * 3, reader_boxes=[[[BOX], [BOX] * 4], None, None]),
                {"by": "boxes", "stages": 3},
                [1, 0, 2],
            ),
        ],
    )
    def test_by_hand(self, dataset, curriculum, found):
        assert stages_of(dataset, **curriculum) == found

    def test_pass_rate_of_a_file_is_the_mean_over_its_lines(self, tmp_path):
        # as `grounding-rewards score` writes them, a line for each completion
        lines = [("f0", 1.0), ("f0", 0.0), ("f1", 0.4), ("f1", 0.4), ("f2", 0.9), ("other", 0.0)]
        path = tmp_path / "scored.jsonl"
        path.write_text("".join(json.dumps({"id": name, "R3": rate, "row": 1}) + "\n" for name, rate in lines))
        found = stages_of(images([BOX], [BOX], [BOX]), by="pass_rate", file=str(path), column="R3", stages=3)
        assert found == [1, 2, 0]

    def test_images_without_findings_enter_in_the_same_shares(self):
        dataset = images(*[[BOX] * (k % 4) for k in range(40)])
        found = np.array(stages_of(dataset, by="boxes", stages=5))
        negative = np.array([k % 4 == 0 for k in range(40)])
        assert np.bincount(found[negative]).tolist() == [2] * 5
        assert np.bincount(found[~negative]).tolist() == [6] * 5

    def test_ties_are_broken_by_chance_and_by_the_seed_alone(self):
        dataset = images(*[[BOX]] * 20)
        assert stages_of(dataset, by="boxes") == stages_of(dataset, by="boxes")
        assert stages_of(dataset, by="boxes") != stages_of(dataset, by="boxes", seed=1)
        assert sorted(stages_of(dataset, by="boxes")) == [0] * 10 + [1] * 10


class TestStages:
    @given(
        st.lists(st.integers(0, 2), min_size=4, max_size=30),
        st.integers(1, 4),
        st.integers(1, 40),
        st.integers(0, 3),
    )
    def test_a_draw_has_different_images_of_its_stage(self, later, drawn, draws, seed):
        entering = np.array([0] * drawn + later)
        stages = Stages(entering, 3, drawn, draws, seed)
        for draw in range(draws + 5):
            found = stages.drawn(draw)
            assert len(set(found)) == len(found) == drawn
            assert entering[found].max() <= stages.stage(draw)
            assert found == stages.drawn(draw)

    def test_stages_are_of_equal_length_and_the_last_one_goes_on(self):
        stages = Stages(np.zeros(4, dtype=int), 3, 2, 12, 0)
        assert [stages.stage(draw) + 1 for draw in range(14)] == [1] * 4 + [2] * 4 + [3] * 6
        # Shorter than there are stages: the whole is still reached.
        assert [Stages(np.zeros(4, dtype=int), 3, 2, 2, 0).stage(draw) + 1 for draw in range(2)] == [1, 2]

    def test_a_pass_has_every_image_of_the_stage_once(self):
        entering = np.arange(12) % 2
        stages = Stages(entering, 2, 3, 8, 0)
        first = [stages.drawn(draw) for draw in range(4)]
        # 6 images, 3 a draw: two draws are a pass
        assert Counter(chain(*first)) == dict.fromkeys(range(0, 12, 2), 2)
        assert first[:2] != first[2:]
        assert Counter(chain.from_iterable(stages.drawn(draw) for draw in range(4, 8))) == dict.fromkeys(range(12), 1)


class TestSampler:
    def sampler(self, stages=3):
        planned = Stages(np.arange(9) * stages // 9, stages, 2, 12, 5)
        return EpochSampler(range(9), mini_repeat_count=2, batch_size=2, repeat_count=3, seed=5, drawn=planned.drawn)

    def test_as_long_and_as_grouped_as_trls(self):
        order = list(self.sampler())
        assert len(order) == len(self.sampler()) == 4 * 2 * 2 * 3
        draw = order[:4]
        assert draw[0] == draw[1] != draw[2] == draw[3]
        assert order[:12] == draw * 3

    def test_any_epoch_without_those_before_it(self):
        through = []
        for epoch in range(3):
            one = self.sampler()
            one.set_epoch(epoch)
            through.append(list(one))
        again = self.sampler()
        again.set_epoch(2)
        assert list(again) == through[2]
        # three stages of four draws each: as many as an epoch has
        assert [max(order) for order in through] == [2, max(through[1]), max(through[2])]
        assert max(through[1]) <= 5 < max(through[2])


VALUES = {**GRPO, "max_completion_length": 30, "max_steps": 6, "train_images": 12, "logging_steps": 1}


def train(folder, curriculum, **values):
    line = [*words({**VALUES, "output_dir": folder, **values}), "--curriculum", json.dumps(curriculum)]
    return train_grpo(*parse_grpo_arguments(line))


class TestRealRuns:
    def test_stages_are_logged_and_resumed(self, tmp_path):
        folder = tmp_path / "run"
        whole = train(folder, {"by": "boxes", "stages": 3}, gradient_accumulation_steps=2)
        assert [entry["curriculum/stage"] for entry in history(folder)] == [1, 1, 2, 2, 3, 3]
        moved = weights(whole)
        stopped = stopped_copy(folder, 3)
        resumed = train(
            stopped, {"by": "boxes", "stages": 3}, gradient_accumulation_steps=2, resume_from_checkpoint="last"
        )
        assert history(stopped) == history(folder)
        assert same_weights(weights(resumed), moved)

    def test_refused_before_the_first_step(self, tmp_path):
        # However many of the 8 images have findings: 3 at most are a fourth of these and a fourth of those.
        with pytest.raises(ValueError, match="at least 4 images for the first of 4 stages"):
            train(tmp_path / "run", {"by": "boxes", "stages": 4}, per_device_train_batch_size=8, train_images=8)
        with pytest.raises(ValueError, match=r"a share from 0 to 1 as pass_rate in every row for train_dataset"):
            train(tmp_path / "run", {"by": "pass_rate"})
        assert not (tmp_path / "run" / "config.yaml").exists()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("boxes", "a mapping for curriculum, got 'boxes'"),
        ({"by": "size"}, "one of boxes, area, pass_rate for by of curriculum, got 'size'"),
        ({"by": "boxes", "steps": 3}, "some of by, stages, column, file in curriculum, got 'steps'"),
        ({"by": "boxes", "stages": 1}, "a number from 2 up for stages of curriculum, got 1"),
        ({"by": "boxes", "stages": True}, "int for stages of curriculum, got True"),
        ({"by": "area", "file": "rates.jsonl"}, "by: pass_rate beside column and file"),
        ({"by": "pass_rate", "column": 3}, "str for column of curriculum, got 3"),
    ],
)
def test_wrong_settings(given, said):
    with pytest.raises(ValueError, match=f"^Expected {said}"):
        read_extra(Curriculum, given)


@pytest.mark.parametrize("line", ['{"id": "f1"}', '{"id": "f1", "pass_rate": 40}', '{"pass_rate": 0.4}'])
def test_wrong_files(tmp_path, line):
    path = tmp_path / "rates.jsonl"
    path.write_text('{"id": "f0", "pass_rate": 0.5}\n' + line + "\n")
    with pytest.raises(ValueError, match="Expected an id and a share from 0 to 1 as pass_rate in line 2 of"):
        stages_of(images([BOX], [BOX]), by="pass_rate", file=str(path))


def test_images_that_were_not_measured_are_named(tmp_path):
    path = tmp_path / "rates.jsonl"
    path.write_text('{"id": "f0", "pass_rate": 0.5}\n')
    with pytest.raises(
        ValueError, match=r"1 bad row of 2\. Measure these images too.*\n.*row 1 \(id f1\): pass_rate None"
    ):
        stages_of(images([BOX], [BOX]), by="pass_rate", file=str(path))
