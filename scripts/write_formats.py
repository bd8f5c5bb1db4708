"""Write docs/formats.md: the table of all box formats, from the formats themselves.

python scripts/write_formats.py           write it
python scripts/write_formats.py --check   only say whether it is up to date; exit code 1 if not
"""

from __future__ import annotations

import argparse
import html
import sys
from pathlib import Path

from page_parts import write_or_check

from grounding_rewards.boxes import ORDERS, SPACES
from grounding_rewards.parsing import BoxFormat, format_boxes, get_box_format, list_box_formats, parse_boxes
from grounding_rewards.parsing.formats import MODEL_TYPES, MODELS_WITHOUT_FORMAT, SOURCES
from grounding_rewards.parsing.results import REASON_MEANINGS

PAGE = Path(__file__).resolve().parent.parent / "docs" / "formats.md"
#: The image of the examples: not square, and resized by the processor.
SIZES = {"width": 1000, "height": 800, "resized_width": 1008, "resized_height": 812}
BOXES = [[200.0, 160.0, 400.0, 480.0], [600.0, 240.0, 800.0, 400.0]]
LABELS = ["mass", "nodule"]
STRIPPED = {"nothing": "–", "tags": "the tags", "boxes": "the boxes: pass a tokenizer"}
SCOPES = (
    "`answer`: the last answer tag, else what follows the thinking; "
    "`after_think`: all that follows the thinking; `all`: the whole text"
)
INTRODUCTION = """\
# Box formats

*Made by `python scripts/write_formats.py` from `grounding_rewards/parsing/formats.toml`; a test keeps it up to date.*

A box format says how one model family writes boxes: the syntax, the order of the four numbers, and what they mean. Name
it once (`box_format: qwen3-vl`) and boxes come out in pixels of the original image. It is never guessed from the
numbers; when they contradict it, the reward warns and `grounding-rewards inspect` says which declaration would fit.

All formats are read by the same scanners, so a model may drift: JSON in broken spellings, lists, corner points, tags of
another family, bare lines of numbers. Never read as a box are points, quadrilaterals, 3-D boxes, any other count than
four numbers, placeholders, numbers cut off, and numbers under a key that holds something else. Each is counted under a
name (last table).

## Formats
"""
#: Models that write what a format above reads: who, what to declare, an answer, where it is said.
ALSO_READ = (
    (
        "Qwen2.5-VL trained by ms-swift in its legacy form",
        {"syntax": "qwen2-vl", "space": "resized_pixel"},
        "<|object_ref_start|>mass<|object_ref_end|><|box_start|>(202,162),(403,487)<|box_end|>",
        "modelscope/ms-swift: templates/qwen.py, read: `norm_bbox = 'none'` for Qwen2.5-VL",
    ),
    (
        "Qwen3-VL trained by ms-swift in its legacy form",
        "qwen2-vl",
        "<|object_ref_start|>mass<|object_ref_end|><|box_start|>(200,200),(400,600)<|box_end|>",
        "modelscope/ms-swift: templates/qwen.py, read: 0 to 1000 as for Qwen2-VL",
    ),
    (
        "MiMo-VL",
        "qwen2.5-vl",
        '[{"bbox_2d": [202, 162, 403, 487], "label": "mass"}]',
        "XiaomiMiMo/MiMo-VL: grounding.ipynb; modelscope/ms-swift: templates/qwen.py, read",
    ),
    (
        "MiniMax-M3",
        "kimi-vl",
        '[{"box": [0.2, 0.2, 0.4, 0.6], "label": "mass"}]',
        "second hand: programs that call it",
    ),
    ("HunyuanOCR", "qwen-vl", "mass(200,200),(400,600)", "second hand: programs that call it"),
    (
        "MedGemma 1.5 on images that are padded to a square first, as in Google's notebook",
        {"syntax": "medgemma-1.5", "space": "pad1000"},
        '```json\n[{"box_2d": [260, 200, 580, 400], "label": "mass"}]\n```',
        "Google-Health/medgemma: cxr_anatomy_localization_with_hugging_face.ipynb, read in a copy",
    ),
    (
        "PaliGemma fine-tuned on tokens of n / 1024",
        {"syntax": "paligemma", "space": "bin1024"},
        "<loc0205><loc0205><loc0614><loc0410> mass",
        "roboflow's and other converters: round(v * 1024)",
    ),
)
WITHOUT_FORMAT = """
For a model of another `model_type` a run stops before the first step and says how to find out what it writes: sample 20
answers to images with a finding, and `grounding-rewards inspect answers.jsonl --box-format json` says which declaration
fits ([explained](inspect.md)). Of these it is known why there is no format (looked up in November 2026):

| model_type | why |
|---|---|
"""
DECLARE = """
## A format of your own

In YAML or Python, start from any of them (`json` and `brackets` are there for that) and say what differs:

```yaml
box_format: {syntax: json, keys: [region], order: xywh, space: pixel}
```

```python
>>> import grounding_rewards as gr
>>> mine = {"syntax": "json", "keys": ["region"], "order": "xywh", "space": "pixel"}
>>> gr.parse_boxes('{"region": [10, 20, 30, 40], "label": "mass"}', box_format=mine).boxes.tolist()
[[10.0, 20.0, 40.0, 60.0]]
>>> gr.format_boxes([[10, 20, 40, 60]], mine)
'```json\\n[\\n\\t{"region": [10, 20, 30, 40]}\\n]\\n```'

```

What a family's tokens cannot say is refused: `paligemma` in pixels, `kosmos-2` in anything but its grid.

| field | values |
|---|---|
| `syntax` | the format to start from |
| `space` | SPACE_NAMES |
| `order` | ORDER_NAMES |
| `keys` | the JSON keys that hold a box, and no others; without it, all that are in use |
| `scope` | SCOPES |
| `decimals` | digits behind the point in written answers |

## Held to the format

`gr.box_format_regex(box_format, max_boxes, labels=...)` is the format as a regular expression, for constrained
decoding: a model that was never trained to point answers in the format from the first step on.

```python
>>> import re
>>> pattern = gr.box_format_regex("answer-list", max_boxes=2)
>>> bool(re.fullmatch(pattern, "<answer>[0.100, 0.200, 0.300, 0.400]</answer>"))
True
>>> bool(re.fullmatch(pattern, "<answer>I am not sure.</answer>"))
False

```

In the configuration of TRL's trainer it is `vllm_structured_outputs_regex`.
"""


def code(text: str) -> str:
    """Text as code in a cell of a table."""
    if not text:
        return "*(blank)*"
    shown = text.replace("\n", "⏎").replace("\t", "⇥")
    if "`" in shown or "|" in shown:
        return f"<code>{html.escape(shown, quote=False).replace('|', '&#124;')}</code>"
    return f"`{shown}`"


def row(fmt: BoxFormat) -> str:
    order = fmt.order if not fmt.syntax.patches else "first and last cell"
    space = (
        fmt.space.meaning if not fmt.syntax.patches else f"cells of a {fmt.syntax.patches} × {fmt.syntax.patches} grid"
    )
    types = ", ".join(f"`{name}`" for name in MODEL_TYPES.get(fmt.name, ())) or "–"
    said = SOURCES.get(fmt.name, "–")
    return f"| `{fmt.name}` | {fmt.family} | {order} | {space} | {STRIPPED[fmt.stripped]} | {types} | {said} |"


def also_read(models: str, declared: str | dict[str, str], text: str, source: str) -> str:
    boxes = "; ".join(", ".join(f"{value:.4g}" for value in box) for box in parse_boxes(text, declared, **SIZES).boxes)
    named = declared if isinstance(declared, str) else f"{{{', '.join(f'{key}: {declared[key]}' for key in declared)}}}"
    return f"| {models} | `{named}` | {code(text)} | {boxes} | {source} |"


def without_format() -> list[tuple[str, str]]:
    """The model types without a box format, those of one reason together, and the reason."""
    types: dict[str, list[str]] = {}
    for model_type, why in MODELS_WITHOUT_FORMAT.items():
        types.setdefault(why, []).append(f"`{model_type}`")
    return [(", ".join(names), why) for why, names in types.items()]


def example(fmt: BoxFormat) -> str:
    written = format_boxes(BOXES, fmt, labels=LABELS, **SIZES)
    read = parse_boxes(written, fmt, **SIZES)
    boxes = "; ".join(", ".join(f"{value:.4g}" for value in box) for box in read.boxes)
    labels = ", ".join(label or "–" for label in read.labels)
    negative = format_boxes([], fmt, **SIZES)
    return f"| `{fmt.name}` | {code(written)} | {boxes} | {labels} | {code(negative)} |"


def page() -> str:
    formats = [get_box_format(name) for name in list_box_formats()]
    lines = [
        INTRODUCTION,
        "*Lost without special tokens*: what is gone from the text that TRL hands to a reward, because it decodes with",
        "`skip_special_tokens=True`. `GroundingGRPOTrainer` decodes such formats from the token ids by itself; with",
        "the stock trainer pass `get_reward(..., tokenizer=processor)`. *model_type*: the models for which the trainer",
        "picks the format by itself. *Source*: where it says so; *read*: looked up in November 2026, at the",
        "commit or version in brackets; without it, that place is named by others and was not looked up again;",
        "*second hand*: not said by those who made the model. A fine-tuned model writes what its trainer",
        "wrote: look there first.",
        "",
        "| name | models | order | numbers | lost without special tokens | model_type | source |",
        "|---|---|---|---|---|---|---|",
        *map(row, formats),
        "",
        "Read by one of these as well, each with one box of the image below:",
        "",
        "| models | declare | an answer | read | source |",
        "|---|---|---|---|---|",
        *(also_read(*one) for one in ALSO_READ),
        *WITHOUT_FORMAT.splitlines(),
        *(f"| {types} | {why} |" for types, why in without_format()),
        "",
        "## There and back",
        "",
        f"Two boxes of an image of {SIZES['width']} × {SIZES['height']} pixels that the processor resized to "
        f"{SIZES['resized_width']} × {SIZES['resized_height']}:",
        f"`{BOXES}`, labelled {' and '.join(LABELS)}; as written (⏎ and ⇥ stand for a line feed and a tab), as read",
        "back in pixels of the image, and the family's answer where there is nothing.",
        "",
        "| name | written | read | labels | nothing |",
        "|---|---|---|---|---|",
        *map(example, formats),
        DECLARE.replace("SPACE_NAMES", ", ".join(f"`{name}`" for name in SPACES))
        .replace("ORDER_NAMES", ", ".join(f"`{name}` ({', '.join(order.numbers)})" for name, order in ORDERS.items()))
        .replace("SCOPES", SCOPES),
        "## Why something is no box",
        "",
        "| reason | what it is |",
        "|---|---|",
        *(f"| `{reason}` | {meaning} |" for reason, meaning in REASON_MEANINGS.items()),
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 if the page is out of date")
    arguments = parser.parse_args()
    sys.exit(write_or_check(PAGE, page(), check=arguments.check))


if __name__ == "__main__":
    main()
