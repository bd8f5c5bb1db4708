"""The page: complete in itself, honest about its choice of films, and safe with whatever a model writes."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest
from PIL import Image

from grounding_rewards.report.page import PageAnswer, PageFilm, Section, Tile, choose_films, render_page
from grounding_rewards.report.tables import Row

BOX = (10.0, 10.0, 60.0, 40.0)


def answer(reward: float, boxes: list[tuple[float, ...]] | None = None, text: str = "[]") -> PageAnswer:
    boxes = [BOX] if boxes is None else boxes
    return PageAnswer(boxes, ["mass"] * len(boxes), [0.5] * len(boxes), reward, "because", text)


def film(name: str, before: float, after: float, *, normal: bool = False) -> PageFilm:
    boxes = [] if normal else [BOX]
    return PageFilm(
        name,
        lambda: Image.new("L", (100, 80), 40),
        100,
        80,
        boxes,
        ["mass"] * len(boxes),
        answer(before),
        answer(after, [] if normal and after else None),
    )


def page(films: list[PageFilm]) -> str:
    return render_page(
        title="R4 & friends",
        subtitle="drawn films",
        tiles=[Tile("sampled reward", (0.1, 0, 0.2), (0.4, 0.3, 0.5), (0.3, 0.2, 0.4))],
        rows=[Row("before", {"reward": (0.1, 0.0, 0.2)})],
        headings={"reward": "sampled reward"},
        curves=(b"light", b"dark"),
        sections=choose_films(films),
        definitions={"mean IoU": "of pairs"},
    )


def test_sections_tell_gains_middle_losses_and_normal_films() -> None:
    films = [film(f"f{i}", 0.5, i / 20) for i in range(20)]
    films += [film(f"n{i}", 0.0, 0.2 * (i % 2), normal=True) for i in range(8)]
    sections = choose_films(films, count=3)
    assert [section.title for section in sections] == [
        "Largest gains",
        "In the middle",
        "Largest losses",
        "Normal films",
    ]
    gains, middle, losses, normal = ([one.name for one in section.films] for section in sections)
    assert gains == ["f19", "f18", "f17"]
    assert losses == ["f0", "f1", "f2"]
    assert middle == ["f11", "f10", "f9"]
    assert len(normal) == 3
    assert "9 of 20 films with findings earn more than before, 10 less" in sections[0].note
    assert "0 of 8 before, 4 of 8 after" in sections[3].note


@pytest.mark.parametrize(
    ("films", "titles"),
    [
        ([], []),
        ([film("up", 0.1, 0.9)], ["Largest gains"]),
        ([film("down", 0.9, 0.1)], ["Largest losses"]),
        ([film("same", 0.5, 0.5)], ["In the middle"]),
        ([film("normal", 0.0, 0.2, normal=True)], ["Normal films"]),
    ],
)
def test_empty_sections_are_left_out_and_no_film_comes_twice(films: list[PageFilm], titles: list[str]) -> None:
    assert [section.title for section in choose_films(films)] == titles


class Tags(HTMLParser):
    """Collects open tags and checks that they are closed in order."""

    void = frozenset({"meta", "img", "source", "rect", "use", "image"})

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.references: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.references += [value or "" for name, value in attrs if name in ("href", "src", "srcset")]
        if tag not in self.void:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in self.void:
            assert self.open.pop() == tag


def test_page_is_well_formed_and_refers_to_nothing_outside() -> None:
    tags = Tags()
    tags.feed(page([film("a", 0.1, 0.9), film("b", 0.0, 0.2, normal=True)]))
    assert tags.open == []
    assert all(reference.startswith(("data:", "#")) for reference in tags.references)


def test_each_film_is_in_the_file_once_and_drawn_twice() -> None:
    text = page([film("a", 0.1, 0.9)])
    assert text.count("data:image/jpeg") == 1
    assert text.count('href="#film-0"') == 2


def test_what_the_model_writes_is_shown_and_not_run() -> None:
    nasty = '<script>alert("x")</script>&'
    one = film("a", 0.1, 0.9)
    bad = PageAnswer([BOX], [nasty], [0.5], 0.5, nasty, nasty)
    text = page([PageFilm("<b>", one.load_image, 100, 80, [BOX], ["mass"], bad, one.after)])
    assert "<script" not in text
    assert text.count("&lt;script&gt;") == 4  # label twice (list and box), reason, answer
    assert 'title="&lt;b&gt;"' in text


@pytest.mark.parametrize(
    ("box", "drawn"),
    [
        ((10, 10, 60, 40), True),
        ((-50, -50, 500, 500), True),  # the frame of the film cuts it
        ((60, 10, 10, 40), False),  # inverted
        ((10, 10, 10, 40), False),  # no area
        ((0, 0, float("nan"), 40), False),
        ((0, 0, float("inf"), 40), False),
    ],
)
def test_boxes_that_can_be_drawn_are(box: tuple[float, ...], drawn: bool) -> None:
    one = film("a", 0.1, 0.9, normal=True)
    text = page([PageFilm("a", one.load_image, 100, 80, [], [], answer(0, [box]), answer(0.2, []))])
    assert text.count('class="predicted"') == int(drawn)
    for svg in re.findall(r"<svg.*?</svg>", text):
        ElementTree.fromstring(svg)


def test_large_films_are_shrunk() -> None:
    one = film("a", 0.1, 0.9)
    large = PageFilm("a", lambda: Image.effect_noise((3000, 2000), 60), 3000, 2000, [BOX], ["mass"], *two(one))
    assert len(page([large])) < 300_000


def two(one: PageFilm) -> tuple[PageAnswer, PageAnswer]:
    return one.before, one.after


@pytest.mark.parametrize(
    ("difference", "lower_is_better", "kind"),
    [
        ((0.1, 0.05, 0.2), False, "better"),
        ((0.1, -0.05, 0.2), False, "soft"),  # may be chance
        ((-0.1, -0.2, -0.05), False, "worse"),
        ((-0.1, -0.2, -0.05), True, "better"),
        ((0.1, 0.05, 0.2), True, "worse"),
    ],
)
def test_tiles_are_coloured_only_where_the_interval_leaves_0(
    difference: tuple[float, float, float], lower_is_better: bool, kind: str
) -> None:
    text = render_page(
        title="",
        subtitle="",
        tiles=[Tile("x", (0.5, 0, 1), (0.5, 0, 1), difference, lower_is_better=lower_is_better)],
        rows=[],
        headings={},
        curves=None,
        sections=[Section("empty", "", [])],
        definitions={},
    )
    assert re.search(r'</b><span class="(\w+)">', text).group(1) == kind
