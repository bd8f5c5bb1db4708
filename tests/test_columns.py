"""Many completions by several rewards at once: the same numbers and words as completion by completion."""

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from grounding_rewards.columns import image_sizes, read_references
from grounding_rewards.rewards.grounding import get_reward, score_columns
from tests.tables import table

TEXTS = table("cases", "texts_of_columns")
REFERENCES: tuple[list[list[int]], ...] = ([], [[0, 0, 50, 50]], [[0, 0, 50, 50], [60, 60, 90, 90]])
NAMES = ("R1", "R2", "R3", "R4", "R5")

rows = st.lists(st.tuples(st.sampled_from(TEXTS), st.sampled_from(REFERENCES)), min_size=1, max_size=8)


def columns_of(references: list[Any], **others: Any) -> dict[str, Any]:
    n = len(references)
    labels = [["mass", "effusion"][: len(boxes)] for boxes in references]
    return {"boxes": references, "labels": labels, "width": [100] * n, "height": [100] * n, **others}


@given(rows, st.sampled_from(["ignore", "exact", "synonyms"]), st.sampled_from(["keep", "zero"]), st.booleans())
@settings(deadline=None)
def test_the_same_as_details(rows: Any, label_matching: str, on_truncated: str, with_ignored: bool) -> None:
    texts, references = map(list, zip(*rows, strict=True))
    columns = columns_of(references)
    if with_ignored:
        columns["ignore_boxes"] = [[[80, 80, 90, 90]]] * len(texts)
    rules = {"label_matching": label_matching, "on_truncated": on_truncated}
    made = [get_reward(name, box_format="qwen3-vl", **rules) for name in NAMES]
    found = score_columns(made, texts, **columns)
    for reward in made:
        name = reward.__name__
        assert found[name] == reward(texts, **columns)
        for k, one in enumerate(reward.details(texts, **columns)):
            for part in ("f_beta", "quality", "precision", "recall", "tp", "fp", "fn"):
                assert found[f"{name}/{part}"][k] == getattr(one, part)
            mean_iou = sum(one.ious) / len(one.ious) if one.ious else 0.0
            assert found[f"{name}/mean_iou"][k] == pytest.approx(mean_iou)
            assert found[f"{name}/reason"][k] == one.reason
            assert found["status"][k] == one.parsed.status
            assert found["rejected"][k] == one.parsed.rejected
            assert found["boxes"][k] == len(one.parsed.boxes)


def test_the_best_reader_may_differ_from_reward_to_reward() -> None:
    rewards = [get_reward("R3", box_format="qwen3-vl"), get_reward("R5", box_format="qwen3-vl")]
    columns = {"reader_boxes": [[[[0, 0, 50, 50]], []]], "width": [100], "height": [100]}
    found = score_columns(rewards, ["[]"], **columns)
    assert found["R3/reason"] == found["R5/reason"] == ["nothing to find, and says so"]
    assert found["R3/fn"] == [0]


def test_rewards_that_compare_labels_beside_some_that_do_not() -> None:
    strict = get_reward("R3", box_format="qwen3-vl", label_matching="exact")
    rewards = [get_reward("R2", box_format="qwen3-vl"), strict]
    for text, hits in ((TEXTS[2], 1), (TEXTS[2].replace("effusion", "mass"), 0)):
        found = score_columns(rewards, [text], **columns_of([REFERENCES[2]]))
        assert (found["R2/tp"], found["R3/tp"]) == ([1], [hits])


def test_somebodys_own_reward() -> None:
    class Half:
        def score(self, pred: Any, gt: Any) -> float:
            return 0.5

    from dataclasses import replace

    own = replace(get_reward("R3", box_format="qwen3-vl"), name="half", box_reward=Half())
    found = score_columns([own], [TEXTS[0]], **columns_of([REFERENCES[1]]))
    assert found["half"] == [0.5]
    assert found["half/tp"] == [1]


def test_no_completions() -> None:
    found = score_columns([get_reward("R3", box_format="qwen3-vl")], [], boxes=[], width=[], height=[])
    assert set(map(len, found.values())) == {0}


@pytest.mark.parametrize(("rewards", "message"), table("cases", "what_is_refused"))
def test_what_is_refused(rewards: list[dict[str, Any]], message: str) -> None:
    made = [get_reward(**{"name": "R3", "box_format": "qwen3-vl", **one}) for one in rewards]
    with pytest.raises(ValueError, match=message):
        score_columns(made, TEXTS[:1], **columns_of([REFERENCES[1]]))


def test_a_label_reward_refuses_a_format_without_labels() -> None:
    made = [get_reward("R3"), get_reward("R4", label_matching="exact")]
    columns = columns_of([REFERENCES[1]], box_format=["llava"])
    with pytest.raises(ValueError, match="Expected a box format with labels"):
        score_columns(made, TEXTS[:1], **columns)


def test_a_column_of_nothing_is_named_by_its_rows():
    with pytest.raises(ValueError, match="column `boxes` with the reference boxes, got None in row 0"):
        read_references({"boxes": [None]}, 1, labelled=False)


@pytest.mark.parametrize("column", ["boxes", "reader_boxes"])
def test_boxes_as_shares_of_the_image_are_refused(column):
    """Every answer would earn 0, a whole run long."""
    box = [[0.1, 0.2, 0.3, 0.4]]
    columns = {column: [box if column == "boxes" else [box], []][:1] * 2, "width": [1000, 1000], "height": [800, 800]}
    with pytest.raises(ValueError, match=r"got none beyond 0.4, such as \[0.1, 0.2, 0.3, 0.4\]: they look normalised"):
        read_references(columns, 2, labelled=False)
    # A sound box beside it, sizes that nobody knows, and images of a few pixels are no such case.
    read_references({"boxes": [box, [[10, 20, 300, 400]]], "width": [1000] * 2, "height": [800] * 2}, 2, labelled=False)
    read_references({"boxes": [box]}, 1, labelled=False)
    read_references({"boxes": [[[0, 0, 1, 1]]], "width": [1], "height": [1]}, 1, labelled=False)


def test_only_images_whose_size_nobody_states_are_opened():
    class Column(list[int]):
        """Numbers in place of images, as a column of a dataset decodes an image when it is taken."""

        def __getitem__(self, k: Any) -> Any:
            opened.append(k)
            return SimpleNamespace(size=(30, 20))

        def __iter__(self) -> Any:
            return map(self.__getitem__, range(len(self)))

    opened: list[int] = []
    sizes = image_sizes({"width": [9, None, None], "height": [9, None, 8], "image": Column(range(3))}, 3)
    assert sizes[:, :2].tolist()[:2] == [[9, 9], [30, 20]]
    # The first one tells whether the column holds anything.
    assert opened == [0, 1]
