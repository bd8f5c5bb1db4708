"""The site of docs/: it is built, loads nothing from elsewhere, fits a telephone, and says all that the code says."""

import re
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

for _library in ("griffe", "mkdocs", "nbclient"):
    pytest.importorskip(_library, reason="needs the docs extra")
pytest.importorskip("trl", reason="needs the train extra")

import grounding_rewards as gr  # noqa: E402
from tests.conftest import REPOSITORY  # noqa: E402
from tests.test_scripts import script  # noqa: E402

# Pixels of a narrow telephone.
NARROW = 400
# With the widest tables and blocks.
WIDEST = ["index", "commands", "configuration", "datasets", "notebook", "tutorial", "troubleshooting", "formats"]
WIDEST += ["audit", "doctor", "api/scoring", "api/metrics", "api/training"]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built as `make docs` builds it: a link that leads nowhere ends it."""
    from mkdocs.commands.build import build
    from mkdocs.config import load_config

    folder = tmp_path_factory.mktemp("site")
    config = load_config(str(REPOSITORY / "mkdocs.yml"), site_dir=str(folder))
    config.plugins.on_startup(command="build", dirty=False)
    build(config)
    return folder


class _Page(HTMLParser):
    """Collects what a page loads, and its ids."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.ids: set[str] = set()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.ids.add(given.get("id", ""))
        if tag != "a":
            self.loads += [given[name] for name in ("src", "href") if name in given]


def test_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > 20
    for page in pages:
        loaded = [one for one in _Page(page).loads if re.match(r"(https?:)?//", one)]
        assert loaded == [], page.name
    for sheet in site.rglob("*.css"):
        assert not re.search(r"url\(\s*['\"]?(https?:)?//|@import", sheet.read_text(encoding="utf-8")), sheet.name


def test_every_page_names_the_version_and_the_licence(site: Path) -> None:
    for page in ("index.html", "rewards.html"):
        assert f"grounding_rewards {gr.__version__} (alpha), Apache-2.0" in (site / page).read_text(encoding="utf-8")


def test_public_names_stand_on_the_pages_of_python(site: Path) -> None:
    ids = set().union(*(_Page(page).ids for page in (site / "api").glob("*.html")))
    said = {one.rpartition(".")[2] for one in ids}
    # `rewards` is the module, whose names stand by themselves.
    assert {name for name in gr.__all__ if name != "rewards"} <= said


def test_no_page_is_wider_than_a_telephone(site: Path, chromium: Any) -> None:
    tab, wide = chromium.new_page(viewport={"width": NARROW, "height": 800}), {}
    for name in WIDEST:
        tab.goto((site / f"{name}.html").as_uri())
        if (width := tab.evaluate("document.documentElement.scrollWidth")) > NARROW:
            wide[name] = width
    assert wide == {}


def test_examples_of_docstrings_are_code_below_a_heading_or_not() -> None:
    shown = script("site_docstrings").for_site
    assert shown("As :func:`f`.\n\n>>> f([1])\n[1]\n\nMore.") == "As `f`.\n\n```pycon\n>>> f([1])\n[1]\n```\n\nMore."
    assert shown("It does\n* a\n  b\n* c") == "It does\n\n* a\n  b\n* c"
    assert shown("It.\n\nExample:\n    >>> f()") == "It.\n\nExamples:\n    >>> f()"


def test_a_link_that_leads_nowhere_ends_the_build() -> None:
    pages = script("site_pages")

    on_top = SimpleNamespace(file=SimpleNamespace(src_uri="x.md"))
    assert pages.on_page_markdown("[a](../configs/demo/grpo.yaml)", on_top) == "`configs/demo/grpo.yaml`"
    with pytest.raises(FileNotFoundError, match=r"got configs/none\.yaml"):
        pages.on_page_markdown("[a](../configs/none.yaml)", on_top)
