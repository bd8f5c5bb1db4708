"""The report as a person meets it: in Chromium, with mouse, keyboard, printer, dark ground and small screens."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("matplotlib", reason="needs the train extra")
Image = pytest.importorskip("PIL.Image", reason="needs the train extra")

import grounding_rewards as gr  # noqa: E402
from grounding_rewards.audit.run import audit  # noqa: E402
from grounding_rewards.doctor.examine import examine  # noqa: E402
from grounding_rewards.metrics.evaluation import Measures, evaluate  # noqa: E402
from grounding_rewards.report.audit_page import render_audit_page  # noqa: E402
from grounding_rewards.report.doctor_page import render_doctor_page  # noqa: E402
from grounding_rewards.report.evaluation_page import MISSED_FINDING, EvaluationPage, render_evaluation_page  # noqa: E402
from tests.report.evaluations import BOX, HOSTILE, NOTHING, answered, page  # noqa: E402
from tests.report.test_audit_page import FMT, IMAGES  # noqa: E402
from tests.report.test_comparison import page as diff_page  # noqa: E402
from tests.report.test_comparison import pair  # noqa: E402
from tests.report.test_doctor_page import images, write_images  # noqa: E402

ACCESSIBILITY = Path(__file__).with_name("accessibility.js").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def pages(tmp_path_factory) -> dict[str, Path]:
    """A file of every kind of page; `measured` is an evaluation whose metrics are those of its images."""
    made = [answered(f"good {k}", pred=[(20, 20, 60, 40 + 2 * k)], reward=k / 12) for k in range(12)]
    made += [answered("called", pred=[BOX], pred_labels=("nodule",), reward=1.0), answered("none", status="empty")]
    found = evaluate({"mine": made}, Measures("R4"))
    r1 = gr.get_reward("R1", box_format=FMT)
    # A label and a path with long names, and images with defects.
    folder = tmp_path_factory.mktemp("images") / "a_name_that_no_line_of_a_telephone_is_long_enough_for"
    folder.mkdir()
    of_doctor = images()
    of_doctor[1].update(boxes=[[290, 20, 400, 90]])
    of_doctor[2].update(labels=["pleural thickening with a long name"], patient_id="12")
    write_images(folder, of_doctor)
    measured = EvaluationPage(title="mine", subtitle="", evaluation=found, reward="R4")
    written = {
        "report": render_evaluation_page(page()),
        "measured": render_evaluation_page(measured),
        "diff": diff_page([pair("a", 0.1, 0.9), pair("b", 0.0, 0.2, normal=True)]),
        "audit": render_audit_page(audit({"R1": r1}, IMAGES, FMT), dataset="images"),
        "doctor": render_doctor_page(examine(str(folder), thumbnails=8)),
    }
    files = {name: folder / f"{name}.html" for name in written}
    for name, path in files.items():
        path.write_text(written[name], encoding="utf-8")
    return files


@pytest.fixture
def report(pages) -> Path:
    return pages["report"]


@pytest.fixture
def visit(chromium, report) -> Iterator[Any]:
    """Open the report; at the end nothing may have been asked for, complained about or changed by the answers."""
    opened, heard, known = [], [], []

    def asked(url: str) -> None:
        # Pictures are inside the file.
        if url not in known and not url.startswith("data:image/"):
            heard.append(f"asks for {url[:80]}")

    def go(path: Path = report, **options: Any) -> Any:
        context = chromium.new_context(**options)
        opened.append(context)
        tab = context.new_page()
        tab.on("request", lambda request: asked(request.url))
        # The browser reports what the policy refuses on the console.
        tab.on("console", lambda message: heard.append(f"{message.type}: {message.text}"))
        tab.on("pageerror", lambda error: heard.append(str(error)))
        known.append(path.as_uri())
        tab.goto(path.as_uri())
        return tab

    yield go
    assert heard == []
    for context in opened:
        assert all(tab.title() != "owned" for tab in context.pages)
        context.close()


def write(folder: Path, made: list[Any], **change: Any) -> Path:
    path = folder / "other.html"
    path.write_text(render_evaluation_page(page(made, **{**NOTHING, **change})), encoding="utf-8")
    return path


def cards(tab: Any) -> list[str]:
    return tab.locator("#Gallery article header bdi").all_inner_texts()


def rows(tab: Any) -> list[str]:
    return tab.locator("table.every tbody th").all_inner_texts()


def tally(tab: Any) -> str:
    return tab.locator("#Tally").inner_text()


def test_everything_is_there(visit) -> None:
    tab = visit()
    parts = ["Metrics", "Overlap", "By label, size and source", "Robustness", "Images", "How it was measured"]
    assert tab.locator("h2").all_inner_texts() == parts
    assert tab.locator(".plot img[alt]").count() == 1
    assert tab.locator("#Gallery h3").count() == 5
    assert tally(tab) == "19 images of 19, 19 in the gallery"
    assert len(rows(tab)) == 19
    assert tab.locator("table.every thead th").all_inner_texts()[-6:] == ["R1", "R2", "R3", "R4", "R5", "outcome"]
    # Every image of the gallery is there as a picture that can be decoded.
    widths = tab.evaluate(
        "Promise.all([...document.querySelectorAll('#Gallery image')].map(one => {"
        " const image = new Image(); image.src = one.getAttribute('href');"
        " return image.decode().then(() => image.naturalWidth); }))"
    )
    assert widths == [200] * 19


def test_boxes_lie_where_they_are_on_the_image(visit) -> None:
    tab = visit()
    card = tab.locator("article[data-place='5']")
    assert card.locator("text.predicted").text_content() == "mass 0.60"
    # a finding that is found needs no caption of its own
    assert card.locator("text.reference").count() == 0
    place = "one => { const at = one.getScreenCTM(); return [at.a, at.e, at.f]; }"
    scale, left, top = card.locator("svg").evaluate(place)
    seen = card.locator("rect.predicted").evaluate("one => one.getBoundingClientRect().toJSON()")
    assert (seen["x"] - left) / scale == pytest.approx(20, abs=1.5)
    assert (seen["y"] - top) / scale == pytest.approx(20, abs=1.5)
    assert seen["width"] / scale == pytest.approx(40, abs=3)
    assert seen["height"] / scale == pytest.approx(30, abs=3)
    dashes = "one => getComputedStyle(one).strokeDasharray"
    assert card.locator("rect.reference").evaluate(dashes) != "none"
    assert card.locator("rect.predicted").evaluate(dashes) == "none"
    # What a model wrote is a quotation.
    assert card.locator("blockquote").inner_text() == "box 5"
    # A box that is turned over has no area to draw.
    assert tab.locator("article[data-place='15'] rect.predicted").count() == 0


def test_outcomes_differ_by_colour_and_by_lines(visit, tmp_path) -> None:
    lungs = [(5, 5, 40, 90), (60, 5, 95, 90)]
    made = [
        answered("named", gt=lungs, gt_labels=("right lung", "left lung"), pred=lungs, pred_labels=("left lung",) * 2),
        answered("beside", pred=[(80, 80, 95, 95)]),
    ]
    tab = visit(write(tmp_path, made, label_matching="exact"))
    sides = {"right": "predicted", "wrong-label": "predicted", "wrong-place": "predicted", "missed": "reference"}
    looks = {}
    for outcome, side in sides.items():
        group = tab.locator(f"#Gallery g.is-{side}.o-{outcome}:has(rect)").first
        look = "one => [getComputedStyle(one).stroke, getComputedStyle(one).strokeDasharray]"
        colour, dash = group.locator(f"rect.{side}").evaluate(look)
        looks[outcome] = (colour, dash, group.locator("line").count())
    assert len({colour for colour, _, _ in looks.values()}) == 4
    # without colours too: dashes, and a cross
    assert len({look[1:] for look in looks.values()}) == 4
    # the legend draws each as the images do
    for outcome, (colour, _, _) in looks.items():
        key = tab.locator(f".outcomes .o-{outcome} rect:not(.halo)").first
        assert key.evaluate("one => getComputedStyle(one).stroke") == colour
    assert tab.locator("#Gallery h3").all_inner_texts()[:2] == ["Missed 1", "Wrong label 1"]
    named = tab.locator("article[data-place='0']")
    assert named.locator("text.predicted").all_text_contents() == ["left lung ≠ right lung 1.00", "left lung 1.00"]


@pytest.mark.parametrize(("width", "scheme"), [(400, "light"), (1280, "dark")])
@pytest.mark.parametrize("name", ["report", "measured", "diff", "audit", "doctor"])
def test_an_audit_of_accessibility_finds_nothing(visit, pages, name: str, width: int, scheme: str) -> None:
    tab = visit(pages[name], viewport={"width": width, "height": 800}, color_scheme=scheme)
    assert tab.evaluate("document.documentElement.scrollWidth") == width
    tab.evaluate("document.querySelectorAll('details').forEach(one => (one.open = true))")
    assert tab.evaluate(ACCESSIBILITY) == []
    ground = tab.evaluate("getComputedStyle(document.body).backgroundColor")
    assert ground == {"light": "rgb(246, 247, 249)", "dark": "rgb(14, 16, 19)"}[scheme]
    if name == "report":
        tab.locator("button.open").first.click()
        assert tab.evaluate(ACCESSIBILITY) == []
    elif name == "audit":
        # Every shade from that of 0 to that of 1 stands on it.
        shades = set(re.findall(r"shade-\d+", pages[name].read_text("utf-8")))
        assert {f"shade-{tenths}" for tenths in (0, 3, 6, 10)} <= shades


def test_filters_hold_for_gallery_and_table(visit) -> None:
    tab = visit()
    tab.select_option("#Label", "nodule")
    assert cards(tab) == rows(tab) == ["missed 2"]
    assert tally(tab) == "1 image of 19, 1 in the gallery"
    tab.click("#Reset")
    assert tally(tab) == "19 images of 19, 19 in the gallery"

    tab.select_option("#Answer", MISSED_FINDING)
    # The two that can't be read have no box either.
    assert rows(tab)[:6] == ["good 0", "good 1", "good 2", "missed 1", "missed 2", "broken 1"]
    tab.select_option("#Answer", "cut_off")
    assert rows(tab) == ["broken 1"]
    tab.click("#Reset")

    tab.fill("#Search", "p7 BOX")
    assert rows(tab) == ["good 7"]
    tab.fill("#Search", "no image has this")
    assert (rows(tab), cards(tab), tally(tab)) == ([], [], "0 images of 19, 0 in the gallery")
    tab.click("#Reset")

    tab.fill("#Low", "0.8")
    assert rows(tab) == ["good 10", "good 11"]
    tab.fill("#High", "0.85")
    assert rows(tab) == ["good 10"]
    tab.fill("#High", "")
    assert rows(tab) == ["good 10", "good 11"]


def test_the_head_leads_to_worst_and_typical_images(visit, pages) -> None:
    tab = visit(pages["measured"], viewport={"width": 1400, "height": 900})
    names = tab.locator(".first b").all_inner_texts()
    # by hand: "good 0" and "none" earn 0, "good 1" 1/12; of the other eleven the middle ones are "good 6" to "good 8"
    typical = [f"Typical · R4 {k / 12:.2f}" for k in (6, 7, 8)]
    assert names == ["Worst · R4 0.00", "Worst · R4 0.00", "Worst · R4 0.08", *typical]
    box = tab.locator(".first").bounding_box()
    assert box["y"] + box["height"] < 900
    tab.locator(".first a").nth(4).click()
    assert cards(tab) == ["good 6", "good 7", "good 8"]
    assert tab.evaluate("document.activeElement.closest('article').dataset.place") == "7"
    assert tab.locator("#Pick").inner_text() == "Typical 3 ✕"


def test_what_a_model_writes_is_shown_and_does_nothing(visit) -> None:
    tab = visit()
    tab.fill("#Search", "onerror")
    assert tab.locator("#Images img, b:has-text('bold')").count() == 0
    card = tab.locator("#Gallery article")
    text = card.locator("pre").inner_text()
    assert "</script><script>" in text
    # what can't be seen, or turns the line, is written out
    assert "⟨U+202E⟩ olleh ⟨U+0000⟩" in text
    assert "⟨U+2028⟩" in text
    assert "مرحبا" in text
    card.locator("button").click()
    large = tab.locator("dialog")
    assert "</script><script>" in large.locator("h3").inner_text()
    assert "2 sampled answers: mean 0.25, from 0.00 to 0.50" in large.inner_text()
    assert large.locator("img, script").count() == 0
    assert tab.title() == "tiny & <small>"


@pytest.mark.parametrize("width", [320, 768, 1280])
def test_it_fits_screens_of_every_width(visit, width: int) -> None:
    tab = visit(viewport={"width": width, "height": 800})
    assert tab.evaluate("document.documentElement.scrollWidth") == width
    tab.locator("button.open").first.click()
    for name in ("dialog", "dialog > header", ".large"):
        assert tab.locator(name).evaluate("one => one.scrollWidth - one.clientWidth") == 0, name
    answered = tab.locator(".large svg").bounding_box()
    assert 0 <= answered["x"] <= width - answered["width"]
    assert min(answered["width"], answered["height"]) >= 0.7 * width * (width <= 720)


def test_on_paper_there_is_no_control_and_nothing_folded(visit) -> None:
    # Paper is white for readers of dark screens too; A4 between its margins is 696 pixels wide.
    tab = visit(color_scheme="dark", viewport={"width": 696, "height": 1000})
    tab.emulate_media(media="print", color_scheme="dark")
    assert tab.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    for name in (".filters", "header.top nav", ".keys", "#Next", ".skip"):
        assert not tab.locator(name).first.is_visible(), name
    assert tab.locator("article").first.is_visible()
    assert tab.evaluate("document.documentElement.scrollWidth") == 696
    tab.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert tab.locator("details table").first.is_visible()
    tab.evaluate("dispatchEvent(new Event('afterprint'))")
    assert not tab.locator("details table").first.is_visible()
    assert tab.pdf(format="A4").startswith(b"%PDF-")


def test_without_javascript_the_metrics_are_complete(visit) -> None:
    tab = visit(java_script_enabled=False)
    assert tab.locator("table").first.is_visible()
    assert tab.locator(".plot img").count() == 1
    assert "need JavaScript" in tab.locator("noscript").inner_text()
    assert HOSTILE not in tab.locator("body").inner_text()
