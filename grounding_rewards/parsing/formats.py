"""Box formats, how model families write boxes: the tables of `formats.toml`, and what users declare from them."""

import functools
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple

from grounding_rewards.boxes import ORDERS, CoordinateSpace, get_space
from grounding_rewards.common.text_files import packaged_tables, parse_yaml
from grounding_rewards.common.validation import check_word

SCOPES = ("answer", "after_think", "all")
#: Words that all formats share: the tables of `keys_and_tags.toml`.
WORDS: dict[str, Any] = packaged_tables("grounding_rewards.parsing", "keys_and_tags.toml")
#: JSON keys that hold a box, in any spelling (`bbox2d`, `boundingBox`).
BOX_KEYS: tuple[str, ...] = tuple(WORDS["keys"]["box"])


class Layout(NamedTuple):
    """How the family lays out an answer: templates for `format_boxes`.

    box: one box; `{0}` … `{3}` are its numbers in the order of the text.
    item: boxes with their label; `{label}` and `{boxes}`.
    bare_item: boxes without a label; `{boxes}`.
    between_boxes: what joins boxes of one label; None where every box is an item of its own.
    between_items: what joins items.
    answer: the whole answer; `{items}`.
    negative: the whole answer where there is nothing to mark.
    """

    box: str
    item: str = "{boxes}"
    bare_item: str = "{boxes}"
    between_boxes: str | None = None
    between_items: str = ""
    answer: str = "{items}"
    negative: str = "None"


class Syntax(NamedTuple):
    """What families that write alike share.

    keyed: boxes are in JSON under a key of the format; four numbers under another key are not a box.
    tokens: how coordinate tokens begin: `loc_` for `<loc_12>`.
    patches: cells a side of the grid of which a pair of tokens names the first and the last cell; 0 without a grid.
    """

    keyed: bool = False
    tokens: tuple[str, ...] = ()
    patches: int = 0


@dataclass(frozen=True)
class BoxFormat:
    """How one model family writes boxes.

    Attributes:
        name: as users write it, for example `qwen2.5-vl`.
        family: the models that write it, for people.
        syntax: what is shared with other families.
        layout: what is written.
        space: what the numbers mean.
        order: of the four numbers in the text, one of `grounding_rewards.boxes.ORDERS`.
        scope: which part of a completion counts: `answer` is the last answer tag, else what follows the thinking;
            `after_think` ignores answer tags; `all` is the whole text.
        decimals: digits after the point that the family writes.
        largest: the largest number that the family can write; None without a limit.
        keys: JSON keys that hold a box, in any case, with or without underscores.
        untagged_label: where the label of a box stands when no tags mark it: `before` it, `after` it, or nowhere.
        negatives: what else states that there is nothing: `blank` text, a `zero_box` alone, an `unboxed_label`.
        no_finding: sentences of the user's own that state it as well.
        stripped: what is lost when special tokens are skipped in decoding: `nothing`, the `tags` (labels may run into
            the text around them), or the `boxes` themselves.
    """

    name: str
    family: str
    syntax: Syntax = field(repr=False)
    layout: Layout = field(repr=False)
    space: CoordinateSpace
    order: str = "xyxy"
    scope: str = "answer"
    decimals: int = 0
    largest: int | None = None
    keys: tuple[str, ...] = BOX_KEYS
    untagged_label: Literal["before", "after"] | None = None
    negatives: tuple[str, ...] = ()
    no_finding: tuple[str, ...] = ()
    stripped: Literal["nothing", "tags", "boxes"] = "nothing"

    @property
    def from_token_ids(self) -> bool:
        """Whether the text should be decoded from the token ids with `skip_special_tokens=False`.

        Example:
            >>> from grounding_rewards.parsing import get_box_format
            >>> get_box_format("qwen2-vl").from_token_ids, get_box_format("qwen3-vl").from_token_ids
            (True, False)
        """
        return self.stripped != "nothing"


def in_xyxy(coords: list[float], order: str) -> list[float]:
    """Convert boxes in one flat list from an order of `ORDERS` to `x1, y1, x2, y2`; for a few boxes faster than numpy.

    Example:
        >>> in_xyxy([1, 2, 3, 4], "yxyx"), in_xyxy([1, 2, 3, 4], "xywh"), in_xyxy([4, 5, 2, 4], "cxcywh")
        ([2, 1, 4, 3], [1, 2, 4, 6], [3.0, 3.0, 5.0, 7.0])
    """
    if order == "xyxy":
        return coords
    convert = ORDERS[order].to_xyxy
    boxes = zip(coords[0::4], coords[1::4], coords[2::4], coords[3::4], strict=True)
    return [value for box in boxes for value in convert(*box)]


_TABLES: dict[str, Any] = packaged_tables("grounding_rewards.parsing", "formats.toml")
_FAMILIES: list[dict[str, Any]] = _TABLES.pop("families")
_WITHOUT_FORMAT: list[dict[str, Any]] = _TABLES.pop("without_format")


def _make_format(name: str) -> BoxFormat:
    """Make the format of a table in `formats.toml`; fields that it leaves out are those of the table it is `like`."""
    fields: dict[str, Any] = {}
    table_name: str | None = name
    while table_name is not None:
        # Fields that are there already stay: they are of a table that is nearer.
        fields = _TABLES[table_name] | fields
        table_name = _TABLES[table_name].get("like")
    families = [family["family"] for family in _FAMILIES if family["format"] == name]
    # A format that no family writes, such as `json`, says itself what it is for.
    fields["family"] = ", ".join(families) or fields["family"]
    fields = {key: tuple(value) if isinstance(value, list) else value for key, value in fields.items()}
    fields["space"] = get_space(fields["space"])
    if "key" in fields:
        # The key that is written comes first; all others are read too.
        fields["keys"] = (fields["key"], *(key for key in BOX_KEYS if key != fields["key"].casefold()))
    # Tables are flat: what belongs to `Syntax` and `Layout` stands in them too.
    fields["syntax"] = Syntax(**{part: fields[part] for part in Syntax._fields if part in fields})
    fields["layout"] = Layout(**{part: fields[part] for part in Layout._fields if part in fields})
    return BoxFormat(name, **{part: fields[part] for part in BoxFormat.__dataclass_fields__ if part in fields})


BOX_FORMATS = {name: _make_format(name) for name in _TABLES}
#: The `model_type` of transformers configurations whose models write a format.
MODEL_TYPES: dict[str, list[str]] = {}
#: Where code or documentation of the families of a format says so.
SOURCES: dict[str, list[str]] = {}
for _family in _FAMILIES:
    MODEL_TYPES.setdefault(_family["format"], []).extend(_family.get("model_types", []))
    SOURCES.setdefault(_family["format"], []).append(_family["source"])
#: Why there is no format for models of a `model_type` that people ask for, and what to do.
MODELS_WITHOUT_FORMAT: dict[str, str] = {
    name: family["why"] for family in _WITHOUT_FORMAT for name in family["model_types"]
}

#: What a mapping may change in the format that its `syntax` names.
_DECLARABLE = ("space", "order", "keys", "scope", "decimals", "no_finding")


def get_box_format(box_format: str | Mapping[str, Any] | BoxFormat) -> BoxFormat:
    """Look up a box format by its name, or make one of a declaration.

    Args:
        box_format: a name; or a mapping, as in YAML, or its text; its `syntax` names the format to start from (`json`
            and `brackets` are there for that) and whose other fields replace `space` (a name of
            `grounding_rewards.boxes.SPACES`), `order` (one of `grounding_rewards.boxes.ORDERS`), `keys` (the JSON keys
            that hold a box), `scope` (`answer`, `after_think` or `all`), `decimals` and `no_finding` (sentences that
            state that there is nothing, beside the declared ones); or a format, returned as it is.

    Raises:
        ValueError: an unknown format or field, or a value that is not legal; the message lists what is.

    Example:
        >>> get_box_format("qwen3-vl").space.name
        'norm1000'
        >>> mine = get_box_format({"syntax": "json", "keys": ["box"], "order": "yxyx", "space": "norm1000"})
        >>> mine.keys, mine.order
        (('box',), 'yxyx')
    """
    if isinstance(box_format, BoxFormat):
        return box_format
    if isinstance(box_format, Mapping):
        return _declared_format(box_format)
    try:
        return BOX_FORMATS[box_format]
    except (KeyError, TypeError):
        if isinstance(box_format, str) and box_format.lstrip().startswith("{"):
            return _written_format(box_format)
        raise ValueError(
            f"Expected a known name for `box_format`, got {box_format!r:.200}. Use one of: {', '.join(BOX_FORMATS)}; "
            "or declare one: {syntax: json, keys: [box], order: xyxy, space: norm1000}."
        ) from None


def box_formats_of(box_format: Any, column: Iterable[Any] = ()) -> list[BoxFormat]:
    """The box formats of many completions, each once and sorted by name.

    Args:
        box_format: of all of them; None takes the column.
        column: the box format of each row.

    >>> [fmt.name for fmt in box_formats_of(None, ["qwen3-vl", "paligemma", "qwen3-vl"])]
    ['paligemma', 'qwen3-vl']
    """
    declarations = column if box_format is None else [box_format]
    # Declared formats are mappings, which no set can hold.
    distinct = {repr(declaration): declaration for declaration in declarations}
    return sorted(map(get_box_format, distinct.values()), key=lambda fmt: fmt.name)


def _declared_format(declaration: Mapping[str, Any]) -> BoxFormat:
    """The format that a mapping declares: the one that `syntax` names, with the other fields of the mapping."""
    if "syntax" not in declaration or not {"syntax", *_DECLARABLE}.issuperset(declaration):
        raise ValueError(
            f"Expected `syntax` and any of {', '.join(_DECLARABLE)} for `box_format`, got {dict(declaration)!r:.200}. "
            "Name the format to start from as `syntax`: json, brackets, or any other."
        )
    base = get_box_format(declaration["syntax"])
    changes = {name: value for name, value in declaration.items() if name != "syntax"}
    for name, words in (("order", ORDERS), ("scope", SCOPES)):
        if name in changes:
            check_word(name, changes[name], words)
    for name in ("keys", "no_finding"):
        if name in changes:
            changes[name] = _declared_texts(name, changes[name])
    decimals = changes.get("decimals", 0)
    if type(decimals) is not int or not 0 <= decimals <= 9:
        raise ValueError(
            f"Expected 0 to 9 for `decimals` of `box_format`, got {decimals!r:.200}. "
            "Give the number of digits after the point, 0 for whole numbers."
        )
    if "space" in changes:
        changes |= _declared_space(base, get_space(changes["space"]), changes)
    if base.syntax.patches and {"space", "order", "decimals"} & changes.keys():
        raise ValueError(
            f"Expected no `space`, `order` or `decimals` for `box_format` {base.name}, got {dict(declaration)!r:.200}. "
            "Its tokens number the cells of a grid; start from another `syntax`."
        )
    # As JSON, which is YAML too: what a log names can be read wherever the package runs.
    declared = {part: declaration[part] for part in ("syntax", *_DECLARABLE) if part in declaration}
    return replace(base, name=json.dumps(declared, ensure_ascii=False, default=str), **changes)


def _declared_texts(name: str, value: Any) -> tuple[str, ...]:
    """The texts that a declaration gives for `keys` or `no_finding`, in a list or one alone; others are refused."""
    texts = [value] if isinstance(value, str) else value
    is_list = isinstance(texts, list | tuple) and len(texts) > 0
    if not is_list or not all(isinstance(text, str) and text for text in texts):
        raise ValueError(
            f"Expected a list of texts for `{name}` of `box_format`, got {value!r:.200}. Give the JSON keys that "
            "hold a box as `keys`, such as [bbox_2d], whole sentences as `no_finding`, such as [Kein Befund.]."
        )
    return tuple(texts)


def _declared_space(base: BoxFormat, space: CoordinateSpace, changes: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that change with the space: itself, the largest number, and how many digits a number has.

    Args:
        base: the format to start from.
        space: the one that is declared.
        changes: the declaration, which may state `decimals`.
    """
    in_pixels = space.frame in ("original", "resized")
    # Its numbers go from 0 to 1.
    is_fraction = space.unit == 1 and not in_pixels
    if base.syntax.tokens and (in_pixels or is_fraction or changes.get("decimals")):
        raise ValueError(
            f"Expected a space of whole numbers with an end for `box_format` {base.name}, got {space.name}. "
            "Its coordinates are tokens, one for each number; start from another `syntax`."
        )
    largest = None
    if base.largest is not None and not in_pixels:
        # The last of n bins, such as those of a crop of the image, is n - 1.
        is_bin = space.name.startswith(("bin", "crop"))
        largest = int(space.unit) - 1 if is_bin else int(space.unit)
    usual_decimals = 3 if is_fraction else 0
    return {"space": space, "largest": largest, "decimals": changes.get("decimals", usual_decimals)}


# Cached, because a log has the text in each row.
@functools.cache
def _written_format(text: str) -> BoxFormat:
    """The format that a text declares, as JSON or, with PyYAML, as YAML."""
    try:
        declaration = json.loads(text)
    except (json.JSONDecodeError, RecursionError):
        try:
            declaration = parse_yaml(text)
        except (ImportError, ValueError) as error:
            raise ValueError(
                f"Expected a name, JSON or YAML for `box_format`, got {text!r:.200} ({error}). "
                "Write it as {syntax: json, space: norm1000}, which needs pip install pyyaml, or as JSON."
            ) from None
    return get_box_format(declaration)


def list_box_formats() -> list[str]:
    """The names of all box formats.

    Example:
        >>> "qwen2.5-vl" in list_box_formats()
        True
    """
    return list(BOX_FORMATS)


#: How to find out what a model writes.
_MEASURE = (
    "To find out what a checkpoint writes, sample 20 answers to images with reference boxes, run `grounding-rewards "
    "inspect answers.jsonl --box-format json`, which says what does not fit and which declaration would, and state it "
    "as `box_format`: one of {names}; or {{syntax: json, keys: [box], order: xyxy, space: norm1000}}."
)


def box_format_for_model_type(model_type: str) -> str:
    """The name of the box format for a `model_type`, as in a model's transformers configuration.

    Raises:
        ValueError: no format is known for it; the message lists the model types that have one, says what is known of
            this one, and how to find out.

    Example:
        >>> box_format_for_model_type("qwen2_5_vl")
        'qwen2.5-vl'
    """
    format_of = {known_type: name for name, model_types in MODEL_TYPES.items() for known_type in model_types}
    if model_type in format_of:
        return format_of[model_type]
    reason = MODELS_WITHOUT_FORMAT.get(model_type)
    raise ValueError(
        f"Expected one of {', '.join(format_of)} for `model_type`, got {model_type!r}. "
        + (f"{reason} " if reason else "")
        + _MEASURE.format(names=", ".join(BOX_FORMATS))
    )
