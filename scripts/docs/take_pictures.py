"""Take the pictures of the README from the page of an evaluation: its head, and its images. Needs Chromium.

python scripts/docs/take_pictures.py runs/demo/after docs/pictures
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

_BROWSERS = ("chromium", "chromium-browser", "google-chrome")
_WIDTH, _HEIGHT = 1180, 900
# Of the head of the page, with its images.
_HEAD_HEIGHT = 505


def find_browser() -> str | None:
    """The Chromium of this machine, if there is one."""
    return next(filter(None, map(shutil.which, _BROWSERS)), None)


def take_pictures(page: Path, folder: Path) -> list[Path]:
    """Write `evaluation.png` and `evaluation_images.png`.

    Args:
        page: `report.html` of an evaluation.
        folder: for the pictures; it is made.

    Raises:
        ValueError: there is no page, or no browser.
    """
    if not page.is_file():
        raise ValueError(f"Expected the page of an evaluation, got no {str(page)!r}. Make it with `make demo`.")
    browser = find_browser()
    if browser is None:
        raise ValueError(f"Expected one of {', '.join(_BROWSERS)}, got none. Install it: `apt-get install chromium`.")
    from playwright.sync_api import sync_playwright

    folder.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=browser)
        tab = opened.new_page(viewport={"width": _WIDTH, "height": _HEIGHT}, color_scheme="light")
        tab.goto(page.resolve().as_uri())
        # In a picture nothing can be searched, and there is more room for images.
        tab.locator(".filters, .keys").evaluate_all("all => all.forEach(one => (one.style.display = 'none'))")
        start = tab.locator("section:has(#Images)").bounding_box()["y"]
        taken = []
        for name, y, height in (("evaluation.png", 0, _HEAD_HEIGHT), ("evaluation_images.png", start, _HEIGHT)):
            taken.append(folder / name)
            clip = {"x": 0, "y": y, "width": _WIDTH, "height": height}
            tab.screenshot(path=taken[-1], full_page=True, clip=clip)
        opened.close()
    return taken


def main() -> None:
    """Read the arguments and take the pictures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("evaluation", type=Path, help="folder that `grounding-rewards evaluate` wrote")
    parser.add_argument("folder", type=Path, help="for the pictures")
    options = parser.parse_args()
    try:
        taken = take_pictures(options.evaluation / "report.html", options.folder)
    except ValueError as error:
        parser.error(str(error))
    print(*taken, sep="\n")


if __name__ == "__main__":
    main()
