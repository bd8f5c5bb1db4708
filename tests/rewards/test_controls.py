"""Controls judge the text, or where a box points: form alone, nothing at all, luck, agreement, the centre."""

import pickle
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import grounding_rewards as gr
from grounding_rewards.rewards import CONTROLS, SPECIFICATION_REWARDS
from grounding_rewards.rewards.scoring import METRIC_KEYS
from tests.conftest import read_lines, valid_box_lists
from tests.parsing.test_parse import FORMAT_OF
from tests.tables import table

GT = [[0, 0, 50, 50]]
SIZES = {"resized_width": [100], "resized_height": [100]}
BOX = '[{"bbox_2d": [0, 0, 500, 500]}]'
OF_TEXT = ("format_only", "constant", "random")


def earned(reward, texts, **columns):
    n = len(texts)
    return reward(texts, **{"boxes": [GT] * n, "width": [100] * n, "height": [100] * n} | columns)


def test_controls_come_after_the_rewards():
    names = gr.list_rewards()
    assert names[:5] == list(SPECIFICATION_REWARDS)
    assert names[-5:] == list(CONTROLS)
    assert "soft_f1" not in CONTROLS


@pytest.mark.parametrize(("text", "expected"), table("rewards/by_hand", "format_only"))
@pytest.mark.parametrize("gt", [GT, []])
def test_format_only(text, expected, gt):
    assert earned(gr.get_reward("format_only", box_format="qwen3-vl"), [text], boxes=[gt]) == [expected]


def test_format_only_on_real_completions(shared_dir):
    """1 exactly where whoever collected them says that they hold boxes or state that there is nothing."""
    for record in read_lines(shared_dir / "data" / "completions" / "completions.jsonl"):
        # boxes beyond the family's range, or under a stray brace: "malformed" for the collector, readable for us
        if record["status"] != "malformed":
            reward = gr.get_reward("format_only", box_format=FORMAT_OF[record["family"]])
            got = earned(reward, [record["text"]], **SIZES)
            assert got == [record["status"] in ("boxes", "explicit_empty")], record["id"]


class TestRandom:
    REWARD = gr.get_reward("random", seed=3, box_format="qwen3-vl")

    def test_golden(self):
        # made once by this package: another version must draw the same numbers, or old runs cannot be resumed
        assert earned(self.REWARD, ["[]"], id=["image-1"]) == [0.610167991746134]

    def test_of_the_text_the_row_and_the_seed_alone(self):
        texts, ids = [BOX, "[]", "no idea", "\ud800"], ["a", "b", "c", "d"]
        together = earned(self.REWARD, texts, id=ids)
        alone = [earned(self.REWARD, [text], id=[row])[0] for text, row in zip(texts, ids, strict=True)]
        assert together == alone == earned(pickle.loads(pickle.dumps(self.REWARD)), texts, id=ids)
        assert len({*together, *earned(self.REWARD, texts, id=ids[::-1])}) == 8
        assert not {*together} & {*earned(gr.get_reward("random", seed=4, box_format="qwen3-vl"), texts, id=ids)}

    def test_rows_without_an_id_are_told_apart_by_their_boxes_and_not_by_their_neighbours(self):
        pair = earned(self.REWARD, ["[]", "[]", "[]"], boxes=[GT, [[1, 1, 2, 2]], []])
        assert len(set(pair)) == 3
        assert earned(self.REWARD, ["[]", "[]"], boxes=[GT, []], id=[None, "named"])[0] == pair[0]
        of_readers = {"boxes": None, "reader_boxes": [[GT, []], [[], GT], [GT, []]]}
        one, other, again = earned(self.REWARD, ["[]"] * 3, **of_readers)
        assert one == again != other


@pytest.mark.parametrize("name", OF_TEXT)
def test_what_is_logged_is_what_r3_logs(name):
    seen, of_r3 = {}, {}
    texts, columns = [BOX, "[]", "no idea"], {"boxes": [GT, [], GT]}
    earned(gr.get_reward(name, box_format="qwen3-vl"), texts, log_metric=seen.__setitem__, **columns)
    earned(gr.get_reward("R3", box_format="qwen3-vl"), texts, log_metric=of_r3.__setitem__, **columns)
    assert [key.removeprefix(f"{name}/") for key in seen] == list(METRIC_KEYS)
    assert [*seen.values()] == pytest.approx([*of_r3.values()], nan_ok=True)


@pytest.mark.parametrize(("texts", "names", "expected"), table("rewards/by_hand", "consensus"))
def test_consensus_is_agreement_within_the_row(texts, names, expected):
    reward = gr.get_reward("consensus", box_format="qwen3-vl")
    assert earned(reward, texts, id=list(names)) == pytest.approx(expected)
    assert earned(reward, texts, id=list(names), boxes=[[[60, 60, 99, 99]]] * len(texts)) == pytest.approx(expected)


@pytest.mark.parametrize(("pred", "gt", "expected"), table("rewards/by_hand", "pointing"))
def test_pointing(pred, gt, expected):
    assert gr.get_reward("pointing").score(pred, gt) == expected


@given(valid_box_lists(1, 4), valid_box_lists(1, 4), st.sampled_from([0.5, 1.0, 2.0]))
def test_pointing_makes_as_many_pairs_as_there_can_be(pred, gt, beta):
    def points(p, g):
        x, y = p[0] + (p[2] - p[0]) / 2, p[1] + (p[3] - p[1]) / 2
        return g[0] <= x <= g[2] and g[1] <= y <= g[3]

    few, many = sorted((pred, gt), key=len)
    right = [[points(a, b) if few is pred else points(b, a) for b in many] for a in few]
    hits = max(sum(right[i][j] for i, j in enumerate(order)) for order in permutations(range(len(many)), len(few)))
    p, r = hits / len(pred), hits / len(gt)
    expected = (1 + beta**2) * p * r / (beta**2 * p + r) if hits else 0.0
    assert gr.get_reward("pointing", beta=beta).score(pred, gt) == pytest.approx(expected, abs=1e-12)
