"""Every bad row is named, with its reason, before the first step; sound datasets pass for every reward and format."""

import dataclasses
import re

import pytest

import grounding_rewards as gr
from grounding_rewards.data.checks import check_dataset, check_films

datasets = pytest.importorskip("datasets", reason="needs the train extra")
Image = pytest.importorskip("PIL.Image", reason="needs the train extra")

R4 = gr.get_reward("R4", box_format="qwen3-vl")

SOUND = {
    "prompt": [{"role": "user", "content": "Find everything."}],
    "boxes": [[10.0, 20.0, 60.0, 80.0]],
    "labels": ["mass"],
    "width": 100,
    "height": 200,
    "id": "film-1",
}


def dataset_of(*changes):
    """A dataset of sound rows, each with one change."""
    rows = [{**SOUND, "id": f"film-{number}", **change} for number, change in enumerate(changes)]
    return datasets.Dataset.from_list(rows)


def with_images(*sizes, **change):
    films = dataset_of(*[change for _ in sizes])
    images = [datasets.Image().encode_example(Image.new("L", size)) for size in sizes]
    return films.add_column("image", images).cast_column("image", datasets.Image())


def test_a_missing_image_is_named():
    films = with_images((100, 200), (100, 200))
    films = films.map(lambda row, k: {"image": None if k else row["image"]}, with_indices=True)
    with pytest.raises(ValueError, match=r"row 1 .*image is missing"):
        check_films(films)


@pytest.mark.parametrize("reward", gr.list_rewards())
@pytest.mark.parametrize("box_format", gr.list_box_formats())
def test_sound_rows_pass(reward, box_format):
    films = dataset_of(
        {},
        {"boxes": [], "labels": []},
        {"boxes": [[0.0, 0.0, 100.0, 200.0], [1.3, 2.7, 33.3, 44.9]], "labels": ["a", "b"]},  # the whole film
        {"boxes": [[5.5, 5.5, 50.0, 50.0]] * 2, "labels": ["a", "b"]},  # two findings in one place
    )
    films = films.add_column("resized_width", [112] * 4).add_column("resized_height", [196] * 4)
    check_dataset(films, gr.get_reward(reward, box_format=box_format))


BAD_ROWS = [
    ({"boxes": [[60.0, 20.0, 10.0, 80.0]]}, "box 0 is [60.0, 20.0, 10.0, 80.0], which has no area"),
    ({"boxes": [[10.0, 20.0, 10.0, 80.0]]}, "which has no area"),  # a line
    ({"boxes": [[10.0, 20.0, 101.0, 80.0]]}, "outside the film of 100 x 200"),
    ({"boxes": [[-1.0, 20.0, 10.0, 80.0]]}, "outside the film"),
    ({"boxes": [[10.0, 20.0, float("nan"), 80.0]]}, "not four finite numbers"),
    ({"boxes": [[10.0, 20.0, float("inf"), 80.0]]}, "not four finite numbers"),
    ({"boxes": [[10.0, 20.0, 60.0]]}, "box 0 is [10.0, 20.0, 60.0], not four numbers"),
    ({"boxes": None, "labels": None}, "boxes is None, not a list"),
    ({"labels": ["mass", "nodule"]}, "2 labels for 1 boxes"),
    ({"labels": []}, "0 labels for 1 boxes"),
    ({"width": None}, "width is missing"),
    ({"height": 0}, "height is 0, not a size in pixels"),
    ({"boxes": [[10.0, 20.0, 10.02, 20.02]]}, "box 0 (0.02 x 0.02 pixels) does not survive the rounding of qwen3-vl"),
]


@pytest.mark.parametrize(("change", "reason"), BAD_ROWS)
def test_bad_row_is_named(change, reason):
    films = dataset_of({}, change, {})
    with pytest.raises(ValueError, match=re.escape(reason)) as caught:
        check_dataset(films, R4)
    assert "row 1 (id film-1): " in str(caught.value)
    assert "1 bad row of 3" in str(caught.value)


def test_all_bad_rows_at_once():
    films = dataset_of(*[change for change, _ in BAD_ROWS])
    with pytest.raises(ValueError, match=f"{len(BAD_ROWS)} bad rows of {len(BAD_ROWS)}") as caught:
        check_dataset(films, R4, name="eval_dataset")
    lines = str(caught.value).splitlines()
    assert "for eval_dataset" in lines[0]
    for number, ((_, reason), line) in enumerate(zip(BAD_ROWS, lines[1:], strict=True)):
        assert line.startswith(f"row {number} (id film-{number}): ")
        assert reason in line


def test_a_row_may_be_bad_in_several_ways():
    films = dataset_of({"boxes": [[10.0, 20.0, 10.0, 80.0], [0.0, 0.0, 500.0, 10.0]]})
    with pytest.raises(ValueError, match=r"1 labels for 2 boxes; box 0 .* no area.*; box 1 .* outside"):
        check_dataset(films, R4)


@pytest.mark.parametrize(
    ("removed", "message"),
    [
        (["boxes"], "Add boxes"),
        (["prompt", "width"], "Add prompt, width"),
    ],
)
def test_missing_columns(removed, message):
    with pytest.raises(ValueError, match=message):
        check_dataset(dataset_of({}).remove_columns(removed), R4)


def test_no_rows():
    with pytest.raises(ValueError, match="at least one row for train_dataset"):
        check_dataset(dataset_of({}).select([]), R4)


def test_rows_without_id():
    films = dataset_of({"width": None}).remove_columns("id")
    with pytest.raises(ValueError, match=r"row 0 \(id -\)"):
        check_dataset(films, R4)


def test_images_stand_for_sizes():
    films = with_images((100, 200), (100, 200)).remove_columns(["width", "height"])
    check_dataset(films, R4)


def test_image_of_another_shape():
    with pytest.raises(ValueError, match="the image is 200 x 100, which is not the shape of 100 x 200") as caught:
        check_dataset(with_images((100, 200), (200, 100)), R4)
    assert "row 0" not in str(caught.value)


@pytest.mark.parametrize("size", [(50, 100), (33, 67), (34, 66)])  # the last two are rounded
def test_shrunken_image(size):
    check_dataset(with_images(size), R4)


class TestBoxFormat:
    ANY = gr.get_reward("R4")

    def test_from_the_column(self):
        check_dataset(dataset_of({"box_format": "qwen3-vl"}, {"box_format": "radvlm"}), self.ANY)

    def test_missing(self):
        with pytest.raises(ValueError, match="Add box_format"):
            check_dataset(dataset_of({}), self.ANY)

    def test_unknown(self):
        with pytest.raises(ValueError, match=r"(?s)row 0 .*got 'qwen9'.*row 1 .*box_format is missing") as caught:
            check_dataset(dataset_of({"box_format": "qwen9"}, {"box_format": None}), self.ANY, name="films")
        assert "radvlm" in str(caught.value)

    def test_resized_sizes_are_needed(self):
        with pytest.raises(ValueError, match="resized_width and resized_height are missing"):
            check_dataset(dataset_of({}), gr.get_reward("R4", box_format="qwen2.5-vl"))


def test_rounding_depends_on_the_format():
    """By hand: 10.6 and 11.4 of 100 pixels are both 0.11 in two decimals, and 0.106 and 0.114 in three."""
    films = dataset_of({"boxes": [[10.6, 20.0, 11.4, 22.0]]})
    check_dataset(films, gr.get_reward("R4", box_format="qwen3-vl"))
    with pytest.raises(ValueError, match=r"box 0 \(0.8 x 2 pixels\) does not survive the rounding of radvlm"):
        check_dataset(films, gr.get_reward("R4", box_format="radvlm"))


def test_only_the_lost_box_is_named():
    films = dataset_of({"boxes": [[0.0, 0.0, 50.0, 50.0], [10.2, 20.2, 10.23, 20.23]], "labels": ["a", "b"]})
    with pytest.raises(ValueError, match="box 1 ") as caught:
        check_dataset(films, R4)
    assert "box 0 " not in str(caught.value)


@dataclasses.dataclass(frozen=True)
class Constant:
    """Somebody's own reward, the same for every answer."""

    value: float

    def score(self, pred, gt):
        return self.value


def test_full_marks_of_a_reward_are_its_own():
    films = dataset_of({}, {"boxes": [], "labels": []})
    check_dataset(films, gr.get_reward(f"{__name__}.Constant", value=0.5, box_format="qwen3-vl"))


def test_a_reward_that_the_truth_cannot_earn():
    films = dataset_of({}, {"boxes": [], "labels": []})
    with pytest.raises(ValueError, match="its own boxes earn 0, so that nothing could be learned") as caught:
        check_dataset(films, gr.get_reward(f"{__name__}.Constant", value=0.0, box_format="qwen3-vl"))
    assert "row 1" not in str(caught.value)  # a bonus of 0 for negatives is legal


def test_no_bonus_for_negatives_is_legal():
    check_dataset(dataset_of({"boxes": [], "labels": []}), gr.get_reward("R4", no_box_bonus=0.0, box_format="qwen3-vl"))


@pytest.mark.parametrize(
    ("row", "named"),
    [
        ({"width": None}, "width is missing"),
        ({"width": 0}, "width is 0"),
        ({"boxes": [[0.0, 0.0, 500.0, 50.0]]}, "outside the film"),
        ({"labels": []}, "0 labels for 1 boxes"),
    ],
)
def test_films_are_checked_without_a_reward(row, named):
    check_films(dataset_of({}))
    with pytest.raises(ValueError, match="row 1 ") as caught:
        check_films(dataset_of({}, row))
    assert named in str(caught.value)
