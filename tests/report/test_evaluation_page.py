"""The report of an evaluation: self-contained, bounded in size, fair in its choice of images, safe with hostile
text."""

import base64
import hashlib
import io
import json
import re

import numpy as np
import pytest

pytest.importorskip("matplotlib", reason="needs the train extra")
Image = pytest.importorskip("PIL.Image", reason="needs the train extra")

from grounding_rewards.metrics.evaluation import GroupMetrics, Measures, evaluate  # noqa: E402
from grounding_rewards.metrics.intervals import Metric  # noqa: E402
from grounding_rewards.metrics.prediction import Prediction  # noqa: E402
from grounding_rewards.report import evaluation_page as module  # noqa: E402
from grounding_rewards.report.evaluation_page import EvaluationPage, render_evaluation_page  # noqa: E402
from grounding_rewards.report.page import PICTURE_BYTES  # noqa: E402
from grounding_rewards.report.tables import group_metrics  # noqa: E402
from tests.report.documents import Document, check_self_contained  # noqa: E402
from tests.report.evaluations import BOX, HOSTILE, NAN, NOTHING, answered, answered_images, page  # noqa: E402

#: Lone surrogates can't be stored.
STORED = HOSTILE.replace("\ud800", "?")


def data_of(document: str) -> dict:
    found = re.search(r'<script type="application/json" id="Data">(.*?)</script>', document, re.DOTALL)
    assert found
    return json.loads(found[1])


def record(document: str, name: str) -> dict:
    return next(one for one in data_of(document)["images"] if one["id"] == name)


@pytest.fixture(scope="module")
def document() -> str:
    return render_evaluation_page(page())


def test_the_document_is_well_formed_and_refers_to_nothing_outside(document: str) -> None:
    check_self_contained(Document(document))


def test_the_policy_allows_this_style_and_script_alone(document: str) -> None:
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]+)"', document)
    assert policy
    rules = dict(rule.strip().split(" ", 1) for rule in policy[1].split(";"))
    for name, tag in (("style-src", "style"), ("script-src", "script")):
        content = re.search(rf"<{tag}>(.*?)</{tag}>", document, re.DOTALL)
        assert content
        digest = base64.b64encode(hashlib.sha256(content[1].encode()).digest()).decode()
        assert rules[name] == f"'sha256-{digest}'"
    # The policy must come before anything that it is to stop.
    assert document.index("Content-Security-Policy") < document.index("<style>") < document.index("<script")


def test_hostile_text_is_data(document: str) -> None:
    assert Document(document).tags.count("script") == 2
    document.encode("utf-8")
    assert STORED in [one["text"] for one in data_of(document)["images"]]
    inside = re.search(r'id="Data">(.*?)</script>', document, re.DOTALL)
    assert inside
    assert inside[1].isascii()
    assert not set("<>&") & set(inside[1])
    share = {"f1_50": (0.5, 0.4, 0.6)}
    changes = {"title": HOSTILE, "subtitle": HOSTILE, "facts": {HOSTILE: HOSTILE}, "systems": {HOSTILE: share}}
    changes |= {"metrics": {"f1_50": Metric(HOSTILE, HOSTILE)}, "per_label": [GroupMetrics(HOSTILE, 7, share)]}
    hostile = render_evaluation_page(page(**changes))
    hostile.encode("utf-8")
    reader = Document(hostile)
    assert reader.tags.count("script") == 2
    assert all(value is None or value.startswith("data:") for name, value in reader.attributes if name == "src")


def test_metrics_stand_with_their_intervals_and_their_baselines(document: str) -> None:
    def line(heading: str) -> str:
        return re.findall(rf'<tr><th scope="row">{heading}.*?</tr>', document)[0]

    assert "0.500<small>[0.400, 0.600]</small>" in line("F1 at IoU 0.5")
    # what a metric is stands below the table
    assert "<dt>F1 at IoU 0.5</dt><dd><bdi>2·TP / (2·TP + FP + FN) over all images.</bdi></dd>" in document
    assert "-1.500" in line("box count error")
    assert '<td class="ceiling">0.840' in line("reward R4")
    # measured nowhere: no line
    assert '<tr><th scope="row">x' not in document


def test_the_histogram_says_what_it_holds() -> None:
    # by hand: of 0, 0.2, 0.5 and 0.8, two are from 0.5 up, one from 0.75 up, one has no partner; mean 1.5 / 4
    shares = "50.0\u00a0% from 0.5 up, 25.0\u00a0% from 0.75 up; 25.0\u00a0% have no partner. Mean 0.375."
    assert shares in render_evaluation_page(page())


def test_a_page_of_images_alone_and_a_page_without_images() -> None:
    alone = render_evaluation_page(page(**NOTHING, facts={}, load_image=None))
    assert ">Images</h2>" in alone
    assert ">Overlap</h2>" not in alone
    assert data_of(alone)["pictures"] == {}
    empty = render_evaluation_page(page([], reward="R4"))
    assert ">Images</h2>" not in empty
    assert 'id="Data"' not in empty
    Document(empty)


def test_the_core_table_has_differences_to_the_constant_box(document: str) -> None:
    core, _, folded = document.partition("<summary>All metrics</summary>")
    rows = re.findall(
        r'<tr><th scope="row">(.*?)</th><td>(.*?)<small>.*?</td><td class="strong">(.*?)<(?:small|/td)', core
    )
    # by hand: 0.75 - 0.1, 0.5 - 0.1; no other metric has a difference
    assert rows == [
        ("recall at IoU 0.5", "0.750", "+0.650"),
        ("F1 at IoU 0.5", "0.500", "+0.400"),
        ("false boxes per image ↓", "0.250", "–"),
        ("hallucination rate ↓", "0.667", "–"),
        ("reward R4", "0.400", "–"),
    ]
    # all others are folded
    assert "box count error" not in core
    assert "box count error" in folded


def groups_of(shown: EvaluationPage) -> list[dict]:
    return data_of(render_evaluation_page(shown))["groups"]


def test_groups_begin_with_failures_and_share_no_image(monkeypatch) -> None:
    made = answered_images()
    places = [place for group in groups_of(page(made)) for place in group["images"]]
    assert len(places) == len(set(places))
    monkeypatch.setattr(module, "IMAGES_PER_GROUP", 4)
    groups = groups_of(page(made))
    names = {group["title"]: [made[place].id for place in group["images"]] for group in groups}
    # by hand: IoU (20 + 2k) / 50 of "good k" is below 0.5 for k < 3
    wanted = {
        "Missed": ["good 0", "good 1", "missed 1", "missed 2"],
        "Hallucinated": ["invented 1", "invented 2"],
        "Unparseable": ["broken 1", STORED],
        "Typical": ["good 5", "good 6", "good 7", "good 8"],
        "Right normal images": ["normal"],
    }
    assert [*names.items()] == [*wanted.items()]
    notes = {group["title"]: group["note"] for group in groups}
    assert notes["Missed"].startswith("5 (31.2 %) of 16 images with findings")
    assert notes["Hallucinated"].startswith("2 (66.7 %) of 3 normal images")


LUNGS = [(5, 5, 40, 90), (60, 5, 95, 90)]


def lungs(*called: str, **more: object) -> Prediction:
    """An image of two lungs, which lie where they should, under the given names."""
    labels = {"gt_labels": ("right lung", "left lung"), "pred_labels": called, "reward": 1.0}
    return answered("lungs", gt=LUNGS, pred=LUNGS, **{**labels, **more})


def test_a_wrong_label_is_shown_as_an_error() -> None:
    both_left = page([lungs("left lung", "left lung")], label_matching="exact", **NOTHING)
    (group,) = groups_of(both_left)
    assert group["title"] == "Wrong label"
    (shown,) = data_of(render_evaluation_page(both_left))["images"]
    assert [box[5] for box in shown["pred"]] == ["wrong label", "right"]
    assert [box[5] for box in shown["gt"]] == ["wrong label", "found"]
    assert [box[8] for box in shown["pred"]] == ["right lung", None]
    assert shown["summary"] == "1 of 2 found, 1 under a wrong label"
    assert module.MISLABELLED in shown["tags"]
    # where labels play no part another one costs nothing
    (shown,) = data_of(render_evaluation_page(page([lungs("left lung", "left lung")], **NOTHING)))["images"]
    assert [box[5] for box in shown["pred"]] == ["right", "right"]
    assert shown["summary"] == "2 of 2 found"


@pytest.mark.parametrize(
    ("one", "tags"),
    [
        (answered("found", pred=[BOX]), ["boxes"]),
        (answered("beside", pred=[BOX, (80, 80, 90, 90)]), ["boxes", module.MISPLACED]),
        (answered("missed", status="empty"), ["empty", module.MISSED_FINDING]),
        (answered("invented", gt=(), pred=[BOX]), ["boxes", module.HALLUCINATED]),
        # in an ignored region nothing is invented
        (answered("ignored", gt=(), pred=[BOX], ignore=[BOX]), ["boxes"]),
        (answered("cut", pred=[BOX], status="truncated", rejected={"cut_off": 2}), ["truncated", "cut_off"]),
        (answered("normal", gt=(), status="empty"), ["empty", module.RIGHT_NORMAL]),
    ],
    ids=lambda value: value.id if hasattr(value, "id") else "",
)
def test_tags_say_what_an_answer_is(one, tags) -> None:
    assert data_of(render_evaluation_page(page([one], **NOTHING)))["images"][0]["tags"] == tags


def test_the_record_of_an_image(document: str) -> None:
    good = record(document, "good 5")
    assert good["gt"] == [[20, 20, 60, 70, "mass", "found", "0.60"]]
    assert good["pred"] == [[20, 20, 60, 50, "mass", "right", "0.60", None, None]]
    assert good["overlap"] == 0.6
    assert good["rewards"] == [0.4167] * 5
    assert good["ceilings"] == [1] * 5
    # near a threshold as many digits as tell on which side a box is
    assert record(document, "good 3")["pred"][0][6] == "0.52"
    assert record(document, "normal")["ceilings"] == [0.2] * 5
    assert record(document, "invented 1")["pred"][0][7] == 0.75
    assert record(document, "invented 2")["pred"][0][:5] == [None, 0, 9, 9, None]
    assert data_of(document)["total"] == len(answered_images())


def test_the_size_is_bounded(monkeypatch) -> None:
    rng = np.random.default_rng(0)
    noise = Image.fromarray(rng.integers(0, 256, (900, 700), dtype=np.uint8))
    monkeypatch.setattr(module, "MOST_LISTED", 30)
    monkeypatch.setattr(module, "TEXT_BUDGET", 8000)
    monkeypatch.setattr(module, "PICTURE_BUDGET", 2_000_000)
    many = [answered(f"f{k}", pred=[BOX] * 80, text="x" * 9000, reward=k / 200) for k in range(200)]
    document = render_evaluation_page(page(many, **NOTHING, load_image=lambda _: noise))
    data = data_of(document)
    # those of the group, and then as many as there is room for
    shown = {str(place) for group in data["groups"] for place in group["images"]}
    assert len(shown) == 12
    assert shown < set(data["pictures"])
    assert 0.9 * module.PICTURE_BUDGET < sum(map(len, data["pictures"].values())) <= module.PICTURE_BUDGET
    for uri in data["pictures"].values():
        content = base64.b64decode(uri.removeprefix("data:image/jpeg;base64,"))
        assert len(content) <= PICTURE_BYTES
        assert max(Image.open(io.BytesIO(content)).size) <= 512
    assert set(range(30)) < set(data["recorded"])
    assert {place for group in data["groups"] for place in group["images"]} < set(data["recorded"])
    assert f"the table below lists {len(data['images'])} of them" in document
    assert all(len(one["text"]) + one["cut"] == 9000 for one in data["images"])
    assert sum(len(one["text"]) for one in data["images"]) <= 30 * 8000 // 30 + 160 * len(data["images"])
    assert all(len(one["pred"]) == module.MOST_BOXES and one["n"] == [1, 80] for one in data["images"])


def test_what_an_image_lacks_is_none() -> None:
    lacking = answered("b")
    object.__setattr__(lacking, "rewards", {"R4": NAN})
    document = render_evaluation_page(page([answered("a"), lacking], **NOTHING, load_image=lambda _: None))
    assert record(document, "b")["rewards"] == [None] * 5
    assert data_of(document)["pictures"] == {}
    assert "Pictures of 0 of 2 images" in document


def test_every_metric_has_a_group() -> None:
    answers = [answered("a", pred=[BOX], reward=0.5), answered("b", pred=[BOX], pred_scores=[0.5], reward=0.5)]
    found = [evaluate({"mine": [one]}, Measures("R4")) for one in answers]
    keys = {key for one in found for key in one.headings}
    assert {"query_ap_50", "froc", "pq", "count_error"} <= keys
    assert "Other metrics" not in group_metrics(keys)
