"""The WCAG contrast of every text of a page against its ground, from its markup and style sheet, without a browser."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import Any, NamedTuple

# Of small text, WCAG 2.2 success criterion 1.4.3.
_LEAST = 4.5
_VOID = frozenset(("meta", "img", "br", "source", "input"))
# Their texts are not drawn, or drawn on an image.
_PASSED_OVER = frozenset(("head", "script", "style", "svg", "noscript", "option"))
_PART = re.compile(r"([.#]?)([\w-]+)|\[class\*=\"([\w-]+)\"\]")

Colour = tuple[float, float, float, float]


class _Element(NamedTuple):
    tag: str
    id: str
    classes: frozenset[str]

    def fits(self, compound: str) -> bool:
        if re.sub(_PART, "", compound) not in ("", "*"):
            return False  # a state, such as :hover
        parts = _PART.findall(compound)
        return all(
            part in " ".join(self.classes)
            if part
            else {"": self.tag, "#": self.id}.get(sign) == name or (sign == "." and name in self.classes)
            for sign, name, part in parts
        )


class _Rule(NamedTuple):
    compounds: list[str]
    weight: tuple[int, int, int]
    values: dict[str, str]

    def fits(self, path: list[_Element]) -> bool:
        """Whether the last element of the path is meant; `>` is taken as any distance."""
        *before, last = self.compounds
        if not path[-1].fits(last):
            return False
        above = iter(path[:-1])
        return all(any(element.fits(one) for element in above) for one in before)


def low_contrasts(page: str, *, dark: bool) -> list[str]:
    """The texts of the page whose contrast is too low, each with its contrast.

    Example:
        >>> low_contrasts("<style>body { color: #777; background: #fff; }</style><body><p>hello</p></body>", dark=False)
        ['hello: 4.48']
    """
    style = re.sub(r"/\*.*?\*/", "", "".join(re.findall(r"<style>(.*?)</style>", page, re.DOTALL)), flags=re.DOTALL)
    media = re.findall(r"@media([^{]*)\{((?:[^{}]*\{[^{}]*\})*)\s*\}", style)
    plain = re.sub(r"@media[^{]*\{(?:[^{}]*\{[^{}]*\})*\s*\}", "", style)
    plain += "".join(rules for query, rules in media if dark and "dark" in query)
    variables: dict[str, str] = {}
    rules = []
    for selectors, body in re.findall(r"([^{}]+)\{([^{}]*)\}", plain):
        values = {name.strip(): value.strip() for name, _, value in (one.partition(":") for one in body.split(";"))}
        variables |= {name: value for name, value in values.items() if name.startswith("--") and ":root" in selectors}
        for selector in selectors.split(","):
            parts = [part for part in selector.split() if part not in ">+~"]
            found = [one for part in parts for one in _PART.findall(part)]
            weight = sum(a == "#" for a, *_ in found), sum(a == "." or bool(c) for a, _, c in found), len(found)
            rules.append(_Rule(parts, weight, values))
    rules.sort(key=lambda rule: rule.weight)
    reader = _Reader(rules, variables)
    reader.feed(page)
    return reader.low


class _Reader(HTMLParser):
    def __init__(self, rules: list[_Rule], variables: dict[str, str]) -> None:
        super().__init__()
        self.rules, self.variables = rules, variables
        self.path: list[_Element] = []
        self.seen: list[tuple[Colour, Colour]] = [((0, 0, 0, 1), (255, 255, 255, 1))]
        self.low: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, Any]]) -> None:
        if tag in _VOID:
            return
        given = dict(attrs)
        self.path.append(_Element(tag, given.get("id") or "", frozenset((given.get("class") or "").split())))
        ink, ground = self.seen[-1]
        for rule in self.rules:
            if {"color", "background"} & rule.values.keys() and rule.fits(self.path):
                ink = self._colour(rule.values.get("color", ""), ink)
                ground = _over(self._colour(rule.values.get("background", ""), (0, 0, 0, 0)), ground)
        self.seen.append((ink, ground))

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, Any]]) -> None:
        """Nothing is written in it."""

    def handle_endtag(self, tag: str) -> None:
        assert self.path.pop().tag == tag
        self.seen.pop()

    def handle_data(self, data: str) -> None:
        if data.strip() and self.path and not _PASSED_OVER & {element.tag for element in self.path}:
            ink, ground = self.seen[-1]
            bright, faint = sorted((_luminance(_over(ink, ground)), _luminance(ground)), reverse=True)
            if (contrast := (bright + 0.05) / (faint + 0.05)) < _LEAST:
                self.low.append(f"{data.strip()}: {contrast:.2f}")

    def _colour(self, text: str, other: Colour) -> Colour:
        text = re.sub(r"var\((--[\w-]+)\)", lambda found: self.variables.get(found[1], ""), text)
        if found := re.fullmatch(r"#(\w{3}|\w{6})", text):
            digits = found[1] if len(found[1]) == 6 else "".join(2 * one for one in found[1])
            red, green, blue = bytes.fromhex(digits)
            return (red, green, blue, 1)
        if found := re.fullmatch(r"rgba\((\d+), (\d+), (\d+), ([\d.]+)\)", text):
            red, green, blue, alpha = map(float, found.groups())
            return (red, green, blue, alpha)
        return other


def _over(top: Colour, ground: Colour) -> Colour:
    alpha = top[3]
    red, green, blue = (alpha * one + (1 - alpha) * other for one, other in zip(top[:3], ground[:3], strict=True))
    return (red, green, blue, 1)


def _luminance(colour: Colour) -> float:
    parts = [one / 255 for one in colour[:3]]
    red, green, blue = (one / 12.92 if one <= 0.04045 else ((one + 0.055) / 1.055) ** 2.4 for one in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
