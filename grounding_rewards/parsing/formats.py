"""The table of box formats: one entry per model family."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from grounding_rewards.boxes import (
    BIN1000,
    CROP100,
    NORM1,
    NORM100,
    NORM999,
    NORM1000,
    NORM1023,
    ORDERS,
    PAD1,
    PAD999,
    RESIZED_PIXEL,
    SQUASH840,
    CoordinateSpace,
    get_space,
)
from grounding_rewards.common.safe_yaml import parse_yaml
from grounding_rewards.parsing.box_format import BOX_KEYS, SCOPES, BoxFormat, Layout, Syntax
from grounding_rewards.parsing.bracket_syntax import read_plain_items, read_plain_lists, read_plain_sentences
from grounding_rewards.parsing.json_syntax import read_plain_json

JSON = Syntax(keyed=True, quick=read_plain_json)
LISTS = Syntax(quick=read_plain_lists)
ITEMS = Syntax(quick=read_plain_items)
SENTENCES = Syntax(quick=read_plain_sentences)

_LIST = "[{0}, {1}, {2}, {3}]"
_CORNERS = "({0},{1}),({2},{3})"
_SENTENCE = "There is a {label} located at {boxes}."

_JSON_LAYOUT = Layout(
    box=_LIST,
    item='\t{{"{key}": {boxes}, "label": {label}}}',
    bare_item='\t{{"{key}": {boxes}}}',
    between_items=",\n",
    answer="```json\n[\n{items}\n]\n```",
    negative="```json\n[]\n```",
)
_JSON_ANSWER = _JSON_LAYOUT._replace(
    item='{{"{key}": {boxes}, "label": {label}}}',
    bare_item='{{"{key}": {boxes}}}',
    between_items=", ",
    answer="<answer>[{items}]</answer>",
    negative="<answer>[]</answer>",
)
_QWEN2_LAYOUT = Layout(
    box=_CORNERS,
    item="<|object_ref_start|>{label}<|object_ref_end|><|box_start|>{boxes}<|box_end|>",
    bare_item="<|box_start|>{boxes}<|box_end|>",
)
_TAGGED = Layout(box=_CORNERS, item="<ref>{label}</ref><box>{boxes}</box>", bare_item="<box>{boxes}</box>")
_TAGGED_LISTS = Layout(
    box=_LIST, item="<ref>{label}</ref><box>[{boxes}]</box>", bare_item="<box>[{boxes}]</box>", between_boxes=", "
)
#: In Rex-Omni and LocateAnything every number is a token.
_NUMBER_TOKENS = "<{0}><{1}><{2}><{3}>"


def _keys(first: str) -> tuple[str, ...]:
    """All box keys, with the one that the family writes in front."""
    return (first, *(key for key in BOX_KEYS if key != first.casefold()))


BOX_FORMATS = {
    box_format.name: box_format
    for box_format in (
        BoxFormat("qwen-vl", "Qwen-VL", ITEMS, _TAGGED, NORM1000, untagged_label="before", stripped="tags"),
        BoxFormat("qwen2-vl", "Qwen2-VL", ITEMS, _QWEN2_LAYOUT, NORM1000, untagged_label="before", stripped="tags"),
        BoxFormat(
            "qwen2.5-vl", "Qwen2.5-VL, Qwen2.5-Omni, Rex-Thinker, MedGround-R1", JSON, _JSON_LAYOUT, RESIZED_PIXEL
        ),
        BoxFormat("qwen3-vl", "Qwen3-VL, Qwen3-Omni, Qwen3.5 to 3.8", JSON, _JSON_LAYOUT, NORM1000),
        BoxFormat(
            "paligemma",
            "PaliGemma 1 and 2",
            Syntax(quick=read_plain_items, tokens=("loc",)),
            Layout(
                box="<loc{0:0>4}><loc{1:0>4}><loc{2:0>4}><loc{3:0>4}>",
                item="{boxes} {label}",
                between_items=" ; ",
                negative="",
            ),
            NORM1023,
            order="yxyx",
            largest=1023,
            untagged_label="after",
            negatives=("blank",),
        ),
        BoxFormat(
            "gemini", "Gemini 2 and 3, Gemma 4", JSON, _JSON_LAYOUT, NORM1000, order="yxyx", keys=_keys("box_2d")
        ),
        BoxFormat("medgemma-1.5", "MedGemma 1.5", JSON, _JSON_LAYOUT, NORM1000, order="yxyx", keys=_keys("box_2d")),
        BoxFormat(
            "florence-2",
            "Florence-2",
            Syntax(tokens=("loc_",)),
            Layout(box="<loc_{0}><loc_{1}><loc_{2}><loc_{3}>", item="{label}{boxes}", negative=""),
            BIN1000,
            largest=999,
            untagged_label="before",
            negatives=("blank",),
            stripped="boxes",
        ),
        BoxFormat(
            "kosmos-2",
            "Kosmos-2",
            Syntax(tokens=("patch_index_",), patches=32),
            Layout(
                box="<patch_index_{0:0>4}><patch_index_{1:0>4}>",
                item="<phrase>{label}</phrase><object>{boxes}</object>",
                bare_item="<object>{boxes}</object>",
                between_boxes="</delimiter_of_multi_objects/>",
            ),
            NORM1,
        ),
        BoxFormat(
            "internvl",
            "InternVL 2 to 3.5",
            ITEMS,
            _TAGGED_LISTS,
            NORM1000,
            untagged_label="before",
            negatives=("zero_box",),
            stripped="tags",
        ),
        BoxFormat(
            "all-seeing", "All-Seeing v2", ITEMS, _TAGGED_LISTS, PAD999, untagged_label="before", stripped="tags"
        ),
        BoxFormat(
            "deepseek-vl2",
            "DeepSeek-VL2, DeepSeek-OCR",
            ITEMS,
            Layout(
                box=_LIST,
                item="<|ref|>{label}<|/ref|><|det|>[{boxes}]<|/det|>",
                bare_item="<|det|>[{boxes}]<|/det|>",
                between_boxes=", ",
            ),
            NORM999,
            largest=999,
            untagged_label="before",
            stripped="tags",
        ),
        BoxFormat(
            "glm-4v",
            "GLM-4.1V, GLM-4.5V, GLM-4.6V",
            Syntax(),
            Layout(
                box="[{0},{1},{2},{3}]",
                between_boxes=", ",
                answer="<|begin_of_box|>[{items}]<|end_of_box|>",
                negative="<|begin_of_box|>None<|end_of_box|>",
            ),
            NORM1000,
            stripped="tags",
        ),
        BoxFormat(
            "cogvlm",
            "CogVLM, CogAgent",
            Syntax(),
            Layout(
                box="{0:0>3},{1:0>3},{2:0>3},{3:0>3}", between_boxes=";", bare_item="[[{boxes}]]", item="[[{boxes}]]"
            ),
            NORM999,
            largest=999,
        ),
        BoxFormat(
            "minicpm-v",
            "MiniCPM-V and -o, to 4.5",
            Syntax(),
            _TAGGED._replace(box="{0} {1} {2} {3}"),
            NORM1000,
            untagged_label="before",
            stripped="boxes",
        ),
        BoxFormat(
            "shikra",
            "Shikra",
            Syntax(),
            Layout(
                box="{0},{1},{2},{3}",
                item="{label}[{boxes}]",
                bare_item="[{boxes}]",
                between_boxes=";",
                between_items=" and ",
            ),
            PAD1,
            decimals=3,
            untagged_label="before",
        ),
        BoxFormat(
            "ferret",
            "Ferret",
            Syntax(),
            Layout(box=_LIST, item="{label} {boxes}", between_items=" and "),
            NORM1000,
            untagged_label="before",
        ),
        BoxFormat("llava", "LLaVA-1.5 and kin", LISTS, Layout(box=_LIST, between_items=", "), PAD1, decimals=2),
        BoxFormat(
            "radvlm",
            "RadVLM",
            SENTENCES,
            Layout(
                box=_LIST,
                item=_SENTENCE,
                bare_item=_SENTENCE.replace("{label}", "finding"),
                between_items=" ",
                negative="No abnormalities are detected on this image.",
            ),
            NORM1,
            decimals=2,
        ),
        BoxFormat("chexagent", "CheXagent-8b", ITEMS, _TAGGED, NORM100, untagged_label="before", stripped="tags"),
        BoxFormat(
            "chexagent-2",
            "CheXagent-2",
            ITEMS,
            Layout(
                box=_CORNERS,
                item="<|ref|> {label} <|/ref|> <|box|> {boxes} <|/box|>",
                bare_item="<|box|> {boxes} <|/box|>",
                between_items=" ",
                negative="No finding detected.",
            ),
            NORM100,
            untagged_label="before",
            stripped="tags",
        ),
        BoxFormat(
            "maira-2",
            "MAIRA-2",
            Syntax(tokens=("x", "y")),
            Layout(
                box="<x{0}><y{1}><x{2}><y{3}>",
                item="<obj>{label}<box>{boxes}</box></obj>",
                bare_item="<box>{boxes}</box>",
                between_boxes="</box><box>",
                negative="No finding.",
            ),
            CROP100,
            largest=99,
            negatives=("unboxed_label",),
        ),
        BoxFormat(
            "locate-anything",
            "LocateAnything",
            Syntax(tokens=("",)),
            _TAGGED._replace(box=_NUMBER_TOKENS, between_boxes="</box><box>", negative="<box>none</box>"),
            NORM1000,
            largest=1000,
            untagged_label="before",
            stripped="boxes",
        ),
        BoxFormat(
            "rex-omni",
            "Rex-Omni",
            Syntax(tokens=("",)),
            _QWEN2_LAYOUT._replace(
                box=_NUMBER_TOKENS, between_boxes=",", between_items=", ", negative="<|box_start|>None<|box_end|>"
            ),
            NORM999,
            largest=999,
            untagged_label="before",
            stripped="boxes",
        ),
        BoxFormat("ovis2.5", "Ovis2.5", ITEMS, _TAGGED, NORM1, decimals=3, untagged_label="before"),
        BoxFormat(
            "perceptron",
            "Perceptron Isaac and Mk1",
            Syntax(),
            Layout(
                box="({0},{1}) ({2},{3})",
                item='<point_box mention="{label}"> {boxes} </point_box>',
                bare_item="<point_box> {boxes} </point_box>",
                between_items=" ",
            ),
            NORM1000,
        ),
        BoxFormat(
            "seed-vl",
            "Seed-VL, Doubao",
            Syntax(),
            Layout(box="<bbox>{0} {1} {2} {3}</bbox>"),
            NORM1000,
            untagged_label="before",
        ),
        BoxFormat(
            "molmoact2",
            "MolmoAct2",
            Syntax(),
            Layout(
                box="1 1 {0} {1} {2} {3}",
                item='<boxes coords="{boxes}">{label}</boxes>',
                bare_item='<boxes coords="{boxes}"></boxes>',
            ),
            NORM1000,
        ),
        BoxFormat(
            "kosmos-2.5",
            "Kosmos-2.5",
            Syntax(tokens=("x_", "y_")),
            Layout(
                box="<x_{0}><y_{1}><x_{2}><y_{3}>",
                item="<bbox>{boxes}</bbox>{label}",
                bare_item="<bbox>{boxes}</bbox>",
                between_items="\n",
            ),
            RESIZED_PIXEL,
            untagged_label="after",
        ),
        BoxFormat(
            "kimi-vl",
            "Kimi-VL, Kimi K2.5 and K2.6",
            JSON,
            _JSON_ANSWER._replace(answer="[{items}]", negative="[]"),
            NORM1,
            decimals=3,
        ),
        BoxFormat(
            "lfm2-vl",
            "LFM2-VL, LFM2.5-VL",
            JSON,
            _JSON_ANSWER._replace(item='{{"label": {label}, "{key}": {boxes}}}', answer="[{items}]", negative="[]"),
            NORM1,
            decimals=3,
            keys=_keys("bbox"),
        ),
        BoxFormat("vlm-r1", "VLM-R1 on Qwen2.5-VL", JSON, _JSON_ANSWER, RESIZED_PIXEL),
        BoxFormat(
            "visual-rft",
            "Visual-RFT on Qwen2-VL",
            JSON,
            _JSON_ANSWER._replace(
                item="{{'{key}': {boxes}, 'Confidence': 1}}",
                bare_item="{{'{key}': {boxes}, 'Confidence': 1}}",
                negative="<answer>No Objects</answer>",
            ),
            NORM1000,
            keys=_keys("Position"),
        ),
        BoxFormat("seg-zero", "Seg-Zero, VisionReasoner", JSON, _JSON_ANSWER, SQUASH840),
        BoxFormat(
            "univg-r1",
            "UniVG-R1",
            Syntax(),
            Layout(
                box=_CORNERS, between_items=", ", answer="<answer>{items}</answer>", negative="<answer>None</answer>"
            ),
            NORM1000,
        ),
        BoxFormat(
            "answer-list",
            "any model that is told to",
            LISTS,
            Layout(box=_LIST, between_items=",", answer="<answer>{items}</answer>", negative="<answer></answer>"),
            NORM1,
            decimals=3,
        ),
        BoxFormat("json", "a base for formats of your own", JSON, _JSON_LAYOUT, NORM1000),
        BoxFormat(
            "brackets",
            "a base for formats of your own",
            LISTS,
            Layout(box=_LIST, item="{label} {boxes}", between_items="\n", negative="[]"),
            NORM1000,
            untagged_label="before",
        ),
    )
}

#: The `model_type` of transformers configurations whose models write a format.
MODEL_TYPES = {
    "qwen2-vl": ("qwen2_vl",),
    "qwen2.5-vl": ("qwen2_5_vl", "qwen2_5_omni", "qwen2_5_omni_thinker"),
    "qwen3-vl": ("qwen3_vl", "qwen3_vl_moe", "qwen3_5", "qwen3_5_moe", "qwen3_omni_moe", "qwen3_omni_moe_thinker"),
    "paligemma": ("paligemma",),
    "gemini": ("gemma4", "gemma4_unified"),
    "florence-2": ("florence2",),
    "kosmos-2": ("kosmos-2",),
    "internvl": ("internvl", "internvl_chat"),
    "deepseek-vl2": ("deepseek_vl_v2", "deepseek_ocr2"),
    "glm-4v": ("glm4v", "glm4v_moe", "glm46v"),
    "minicpm-v": ("minicpmv", "minicpmo"),
    "ovis2.5": ("ovis2_5",),
    "kosmos-2.5": ("kosmos-2.5",),
    "kimi-vl": ("kimi_vl", "kimi_k25"),
    "lfm2-vl": ("lfm2_vl",),
}
#: Where a family's own code or documentation says so.
SOURCES = {
    "qwen-vl": "QwenLM/Qwen-VL: README.md, TUTORIAL.md",
    "qwen2-vl": "QwenLM/Qwen3-VL: issue 866 (maintainer), read; ms-swift: templates/qwen.py, read",
    "qwen2.5-vl": "QwenLM/Qwen3-VL: issues 676, 866, 940 (maintainers), read; Omni: ms-swift, templates/qwen.py, read",
    "qwen3-vl": "QwenLM/Qwen3-VL: issue 1486 (maintainer), read; cookbooks/2d_grounding.ipynb; "
    "QwenLM/Qwen3.8-Flash-Next: issue 4 (maintainer), read; Omni: ms-swift, templates/qwen.py, read",
    "paligemma": "google-research/big_vision: pp/proj/paligemma/segmentation.py (11eea57), read: round(v * 1023)",
    "gemini": "Vertex AI, bounding box detection, read; google-gemini/cookbook: Spatial_understanding.ipynb; "
    "Gemma 4: huggingface/blog, gemma4.md (060165f), read",
    "medgemma-1.5": "Google-Health/medgemma: cxr_anatomy_localization_with_hugging_face.ipynb, read in a copy",
    "florence-2": "huggingface/transformers: processing_florence2.py (5.23.0), read",
    "kosmos-2": "huggingface/transformers: processing_kosmos2.py (5.23.0), read",
    "internvl": "OpenGVLab/InternVL: evaluate_grounding.py (0355722), issue 1009 (maintainer), read",
    "all-seeing": "OpenGVLab/all-seeing: all-seeing-v2 README, eval_grounding.py, issue 10",
    "deepseek-vl2": "deepseek-ai/DeepSeek-VL2: serve/app_modules/utils.py (5266970), read: n / 999",
    "glm-4v": "zai-org/GLM-V: README.md (6a66098), read; issues 114, 118",
    "cogvlm": "THUDM/CogVLM: README.md, read: 000 to 999; its demonstration, grounding_parser.py, divides by 1000",
    "minicpm-v": "OpenBMB/MiniCPM-V: issues 772, 982 (maintainers); OpenSQZ/MiniCPM-V-CookBook: issue 39, read",
    "shikra": "shikras/shikra: box_process_function.py",
    "ferret": "apple/ml-ferret: conversation.py, eval/model_flickr.py",
    "llava": "haotian-liu/LLaVA: issues 606, 623, 822 (users' analysis)",
    "radvlm": "uzh-dqbm-cmi/RadVLM: create_instructions.py, compute_metrics_tasks.py",
    "chexagent": "second hand: cfcmadlad/cxr-grounding-benchmark, README.md",
    "chexagent-2": "Stanford-AIMI/CheXagent: vindr_cxr.py, ms_cxr.py",
    "maira-2": "microsoft/maira-2: processing_maira2.py",
    "locate-anything": "NVlabs/Eagle: Embodied/README.md, DATA_PREPARATION.md",
    "rex-omni": "IDEA-Research/Rex-Omni: rex_omni/parser.py",
    "ovis2.5": "AIDC-AI/Ovis2.5 model card; its report, arXiv 2508.11737, metric 10",
    "perceptron": "perceptron-ai SDK: tests of extract_points",
    "seed-vl": "web-infra-dev/midscene: doubao.ts and its tests",
    "molmoact2": "second hand: programs that call allenai/MolmoAct2",
    "kosmos-2.5": "huggingface/transformers: test_modeling_kosmos2_5.py",
    "kimi-vl": "second hand: MoonshotAI/Kimi-VL, issues 52, 56 (users), read; K2.5: programs that call it",
    "lfm2-vl": "second hand: programs that call it (LibreYOLO: LibreVLM), read",
    "vlm-r1": "om-ai-lab/VLM-R1: issue 198 (maintainers), read; qwen_module.py, read in a copy",
    "visual-rft": "Liuziyu77/Visual-RFT: issues 29, 203",
    "seg-zero": "dvlab-research/Seg-Zero: vision_reasoner_model.py",
    "univg-r1": "AMAP-ML/UniVG-R1: issue 15",
}

#: What a mapping may change in the format that its `syntax` names.
_DECLARABLE = ("space", "order", "keys", "scope", "decimals", "no_finding")


def get_box_format(box_format: str | Mapping[str, Any] | BoxFormat) -> BoxFormat:
    """Look up a box format by its name, or make one of a declaration.

    Args:
        box_format: a name; or a mapping, as in YAML, whose `syntax` names the format to start from (`json` and
            `brackets` are there for that) and whose other fields replace `space` (a name of
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
        return _declared(box_format)
    try:
        return BOX_FORMATS[box_format]
    except (KeyError, TypeError):
        raise ValueError(
            f"Expected a known name for `box_format`, got {box_format!r:.200}. Use one of: {', '.join(BOX_FORMATS)}; "
            "or declare one: {syntax: json, keys: [box], order: xyxy, space: norm1000}."
        ) from None


def box_formats_of(box_format: Any, column: Iterable[Any] = ()) -> list[BoxFormat]:
    """The box formats of many completions, each once and sorted by name.

    Args:
        box_format: of all of them; None takes the column.
        column: the box format of each row.

    >>> [one.name for one in box_formats_of(None, ["qwen3-vl", "paligemma", "qwen3-vl"])]
    ['paligemma', 'qwen3-vl']
    """
    given = column if box_format is None else [box_format]
    # Declared formats are mappings, which no set can hold.
    found = {repr(one): one for one in given}
    return sorted(map(get_box_format, found.values()), key=lambda one: one.name)


def _declared(given: Mapping[str, Any]) -> BoxFormat:
    unknown = [field for field in given if field not in ("syntax", *_DECLARABLE)]
    if unknown or "syntax" not in given:
        raise ValueError(
            f"Expected `syntax` and any of {', '.join(_DECLARABLE)} for `box_format`, got {dict(given)!r:.200}. "
            "Name the format to start from as `syntax`: json, brackets, or any other."
        )
    base = get_box_format(given["syntax"])
    changes: dict[str, Any] = {field: value for field, value in given.items() if field != "syntax"}
    for field, legal in (("order", ORDERS), ("scope", SCOPES)):
        if field in changes and changes[field] not in legal:
            raise ValueError(
                f"Expected one of {', '.join(legal)} for `{field}` of `box_format`, got {changes[field]!r:.200}. "
                f"Without it, that of {base.name} is taken: {getattr(base, field)}."
            )
    for field, example in (
        ("keys", "Give the JSON keys that hold a box, such as [bbox_2d]; without it, all known keys count."),
        ("no_finding", "Give whole sentences, such as [Kein Befund.]; without it, only the published ones count."),
    ):
        if field in changes:
            changes[field] = _declared_texts(field, changes[field], example)
    decimals = changes.get("decimals", 0)
    if isinstance(decimals, bool) or not isinstance(decimals, int) or not 0 <= decimals <= 9:
        raise ValueError(
            f"Expected 0 to 9 for `decimals` of `box_format`, got {decimals!r:.200}. "
            "Give the number of digits after the point, 0 for whole numbers."
        )
    if "space" in changes:
        changes |= _declared_space(base, get_space(changes["space"]), changes)
    if base.syntax.patches and {"space", "order", "decimals"} & changes.keys():
        raise ValueError(
            f"Expected no `space`, `order` or `decimals` for `box_format` {base.name}, got {dict(given)!r:.200}. "
            "Its tokens number the cells of a grid; start from another `syntax`."
        )
    # As JSON, which is YAML too: what a log names can be read wherever the package runs.
    declared = {field: given[field] for field in ("syntax", *_DECLARABLE) if field in given}
    name = json.dumps(declared, ensure_ascii=False, default=str)
    return replace(base, name=name, **changes)


def _declared_space(base: BoxFormat, space: CoordinateSpace, given: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that change with the space: the largest number, and how many digits a number has."""
    in_pixels = space.frame in ("original", "resized")
    is_fraction = space.unit == 1 and not in_pixels
    if base.syntax.tokens and (in_pixels or is_fraction or given.get("decimals")):
        raise ValueError(
            f"Expected a space of whole numbers with an end for `box_format` {base.name}, got {space.name}. "
            "Its coordinates are tokens, one for each number; start from another `syntax`."
        )
    limited = base.largest is not None and not in_pixels
    # The last of n bins is n - 1.
    largest = int(space.unit) - space.name.startswith(("bin", "crop")) if limited else None
    return {"space": space, "largest": largest, "decimals": given.get("decimals", 3 if is_fraction else 0)}


def _declared_texts(field: str, given: Any, remedy: str) -> tuple[str, ...]:
    listed = [given] if isinstance(given, str) else given
    if not isinstance(listed, list | tuple) or not listed or not all(isinstance(one, str) and one for one in listed):
        kind = "names" if field == "keys" else "texts"
        raise ValueError(f"Expected a list of {kind} for `{field}` of `box_format`, got {given!r:.200}. {remedy}")
    return tuple(listed)


_LONGEST_MAPPING = 10_000


def box_format_from_option(given: Any) -> Any:
    """Check a box format from a configuration or a command line, where a mapping may be text.

    Args:
        given: a name, a mapping, a mapping as JSON or (with PyYAML) as YAML, or None.

    Returns:
        The name, the mapping, or None.

    Raises:
        ValueError: something else, or an unknown format; the message lists what is legal.

    Example:
        >>> box_format_from_option('{"syntax": "json", "space": "norm100"}')
        {'syntax': 'json', 'space': 'norm100'}
        >>> box_format_from_option("qwen3-vl")
        'qwen3-vl'
    """
    if isinstance(given, str) and given.lstrip().startswith("{"):
        given = _read_mapping(given)
    if given is not None:
        get_box_format(given)
    return given


def _read_mapping(text: str) -> Any:
    # It may be the cell of a table; a format of one's own takes a few hundred characters.
    if len(text) > _LONGEST_MAPPING:
        raise ValueError(
            f"Expected a mapping of at most {_LONGEST_MAPPING} characters for `box_format`, got {len(text)}. "
            "Write it as {syntax: json, space: norm1000}."
        )
    try:
        return json.loads(text)
    except (json.JSONDecodeError, RecursionError):
        pass
    try:
        return parse_yaml(text)
    except ImportError:
        raise ValueError(
            f"Expected a name or JSON for `box_format`, got {text!r:.200}. Write it as "
            '{"syntax": "json", "space": "norm1000"}, or `pip install pyyaml` to write it as YAML.'
        ) from None
    except ValueError as error:
        raise ValueError(
            f"Expected a name, JSON or YAML for `box_format`, got {text!r:.200} ({error}). "
            "Write it as {syntax: json, space: norm1000}."
        ) from None


def list_box_formats() -> list[str]:
    """The names of all box formats.

    Example:
        >>> "qwen2.5-vl" in list_box_formats()
        True
    """
    return list(BOX_FORMATS)


#: Why there is no format for models of a `model_type` that people ask for, and what to do.
MODELS_WITHOUT_FORMAT = {
    **dict.fromkeys(
        ("molmo", "molmo2"),
        "Molmo answers in points (`<points coords=...>`), which have no extent: no reward for boxes can score them. "
        "Train it to write boxes first (`grounding-rewards sft` with a box_format of your choice), or take another "
        "model.",
    ),
    **dict.fromkeys(
        ("moondream1", "moondream3"),
        "Moondream's boxes come from a part of the model of its own, and not from its text: there is no completion to "
        "score. Take another model.",
    ),
    "gemma3": "Google does not say that Gemma 3 was trained to write boxes. MedGemma 1.5, which has the same "
    "model_type, was: box_format medgemma-1.5.",
    **dict.fromkeys(
        ("smolvlm", "idefics3", "gemma3n"),
        "No word of its makers on a syntax for boxes is known. Train it to write the format of your choice first "
        "(`grounding-rewards sft`).",
    ),
    **dict.fromkeys(
        ("minicpmv4_6", "minicpmv4_7"),
        "Up to 4.5, MiniCPM-V wrote box_format minicpm-v; of later ones no word of its makers is known.",
    ),
}
#: How to find out what a model writes.
_MEASURE = (
    "To find out what a checkpoint writes, sample 20 answers to images with a finding, run "
    "`grounding-rewards inspect answers.jsonl --box-format json`, which says what does not fit and which declaration "
    "would, and state it as `box_format`: one of {names}; or "
    "{{syntax: json, keys: [box], order: xyxy, space: norm1000}}."
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
    names = {known: name for name, own in MODEL_TYPES.items() for known in own}
    if model_type in names:
        return names[model_type]
    known = MODELS_WITHOUT_FORMAT.get(model_type)
    raise ValueError(
        f"Expected one of {', '.join(names)} for `model_type`, got {model_type!r}. "
        + (f"{known} " if known else "")
        + _MEASURE.format(names=", ".join(BOX_FORMATS))
    )
