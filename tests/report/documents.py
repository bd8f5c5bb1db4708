"""Pages read back: every element closed in order, and nothing asked for from outside."""

from html.parser import HTMLParser

_VOID = frozenset(("meta", "img", "br", "source"))


class Document(HTMLParser):
    """The tags and attributes of a page, and of elements of the class `name` the text."""

    def __init__(self, text: str, name: str = "") -> None:
        super().__init__()
        self.name, self.depth = name, 0
        self.open: list[str] = []
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.texts: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.handle_startendtag(tag, attrs)
        if tag in _VOID:
            return
        self.open.append(tag)
        if self.depth:
            self.texts[-1] += " "
        elif self.name and self.name in (dict(attrs).get("class") or "").split():
            self.depth = len(self.open)
            self.texts.append("")

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag):
        if len(self.open) == self.depth:
            self.depth = 0
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.depth:
            self.texts[-1] += data


def check_self_contained(document: Document) -> None:
    """The page and its policy: it runs nothing of others, styles by no attribute, refers to nothing outside itself."""
    assert {"link", "iframe", "form", "base"}.isdisjoint(document.tags)
    [policy] = [value for name, value in document.attributes if name == "content" and "default-src" in (value or "")]
    assert policy.startswith("default-src 'none'; img-src data:; style-src 'sha256-")
    assert "script" in document.tags or "script-src 'none'" in policy
    for name, value in document.attributes:
        assert not name.startswith("on")
        assert name != "style"
        if name in ("src", "href", "srcset", "action", "xlink:href"):
            assert (value or "").startswith(("#", "data:image/")), (name, value)
    ids = [value for name, value in document.attributes if name == "id"]
    assert len(ids) == len(set(ids))
    targets = {value[1:] for name, value in document.attributes if name == "href" and value and value[0] == "#"}
    assert targets <= set(ids)
