"""Write docs/formats.md: the table of all box formats, from the formats themselves.

python scripts/write_formats.py           write it
python scripts/write_formats.py --check   only say whether it is up to date; exit code 1 if not
"""

from __future__ import annotations

import argparse
import html
import sys
from pathlib import Path

from grounding_rewards.boxes import ORDERS, SPACES
from grounding_rewards.parsing import BoxFormat, format_boxes, get_box_format, list_box_formats, parse_boxes
from grounding_rewards.parsing.results import REASON_MEANINGS

PAGE = Path(__file__).resolve().parent.parent / "docs" / "formats.md"
#: The film of the examples: not square, and resized by the processor.
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

*Made by `python scripts/write_formats.py` from `grounding_rewards/parsing/formats.py`; a test keeps it up to date.*

A box format says how one model family writes boxes: the syntax, the order of the four numbers, and what they mean. Name
it once (`box_format: qwen3-vl`) and boxes come out in pixels of the original film. It is never guessed from the
numbers; when they contradict it, the reward warns and `grounding-rewards inspect` says which declaration would fit.

All formats are read by the same scanners, so a model may drift: JSON in broken spellings, lists, corner points, tags of
another family, bare lines of numbers. Never read as a box are points, quadrilaterals, 3-D boxes, any other count than
four numbers, placeholders, numbers cut off, and numbers under a key that holds something else. Each is counted under a
name (last table).

## Formats
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
    types = ", ".join(f"`{name}`" for name in fmt.model_types) or "–"
    return f"| `{fmt.name}` | {fmt.family} | {order} | {space} | {STRIPPED[fmt.stripped]} | {types} |"


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
        "picks the format by itself.",
        "",
        "| name | models | order | numbers | lost without special tokens | model_type |",
        "|---|---|---|---|---|---|",
        *map(row, formats),
        "",
        "## There and back",
        "",
        f"Two boxes of a film of {SIZES['width']} × {SIZES['height']} pixels that the processor resized to "
        f"{SIZES['resized_width']} × {SIZES['resized_height']}:",
        f"`{BOXES}`, labelled {' and '.join(LABELS)}; as written (⏎ and ⇥ stand for a line feed and a tab), as read",
        "back in pixels of the film, and the family's answer where there is nothing.",
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
    if arguments.check:
        sys.exit(0 if PAGE.exists() and PAGE.read_text(encoding="utf-8") == page() else f"{PAGE} is out of date")
    PAGE.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
