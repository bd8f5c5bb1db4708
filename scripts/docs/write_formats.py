"""Write docs/formats.md: all box formats and spaces, from the formats themselves.

python scripts/docs/write_formats.py           write it
python scripts/docs/write_formats.py --check   only say whether it is up to date; exit code 1 if not
"""

from __future__ import annotations

import argparse
import html
import re
import sys
from collections.abc import Iterable
from itertools import chain
from pathlib import Path

from transformers import CONFIG_MAPPING, AutoConfig

from grounding_rewards.boxes import ORDERS, SPACES
from grounding_rewards.parsing import BoxFormat, format_boxes, get_box_format, list_box_formats, parse_boxes
from grounding_rewards.parsing.formats import MODEL_TYPES, SOURCES
from grounding_rewards.training.model import training_obstacle
from scripts.docs.page_parts import write_or_check

PAGE = Path(__file__).resolve().parents[2] / "docs" / "formats.md"
#: The image of the examples: not square, and resized by the processor.
SIZES = {"width": 1000, "height": 800, "resized_width": 1008, "resized_height": 812}
BOXES = [[200.0, 160.0, 400.0, 480.0], [600.0, 240.0, 800.0, 400.0]]
LABELS = ["mass", "nodule"]
SCOPES = (
    "`answer`: the last answer tag, else what follows the thinking; "
    "`after_think`: all that follows the thinking; `all`: the whole text"
)
PAGE_TEXT = """\
# Box formats: the coordinates of boxes

A box format says how a model writes the coordinates of boxes. Name it once, and every box comes out in pixels of the
original image:

```python
>>> import grounding_rewards as gr
>>> text = '[{"bbox_2d": [100, 100, 500, 480], "label": "mass"}, {"bbox_2d": [1, 2, 3]}]'
>>> parsed = gr.parse_boxes(text, box_format="qwen3-vl", width=640, height=480)
>>> parsed.boxes.tolist(), parsed.status, parsed.rejected
([[64.0, 48.0, 320.0, 230.4]], 'boxes', {'wrong_count': 1})

```

In the YAML of a run: `box_format: qwen3-vl`. Misspelt JSON, lists, corners by name, corner points,
tags of another family and bare lines of numbers are read too. A comment in JSON holds no box; where a sentence or a
line through it takes a box back ("Sorry, the right answer is …", `~~…~~`), both count.
[`inspect`](scoring.md) explains why something is no box.

## Bring your own model

1. Find your model under [Formats](#formats), or [declare a format](#a-format-of-your-own). A fine-tuned model writes
   what it was fine-tuned on. A `model_type` without a format ends the run before the first step, with the reason.
2. Let the model answer some images. [`inspect`](scoring.md) says how many answers were read, why the others were not,
   and, with reference boxes, which space or order would fit better.
3. `doctor` says how small findings become at the size that the model sees, and how many tokens an answer needs. The
   size is estimated for processors other than Qwen's (and those alike) and those of one size (SigLIP, CLIP, Gemma 3,
   BLIP). `max_image_pixels` sets [the size](training.md#image-size).
4. [`signal`](signal.md) says whether GRPO can teach it. A model that never writes a box needs
   [a warm start](training.md#warm-start).

```bash
grounding-rewards evaluate --model path/to/model --dataset path/to/images --max-images 32 --out runs/first
grounding-rewards inspect runs/first/completions.jsonl
grounding-rewards doctor path/to/images --model path/to/model
grounding-rewards signal --model path/to/model --dataset path/to/images --reward R4
```

## Spaces: what the numbers mean

`[100, 200, 300, 400]` may be pixels or thousandths of the image. Coordinates are declared by the format, never inferred
from the numbers:

```python
>>> text = '[{"bbox_2d": [100, 200, 300, 400]}]'
>>> image = {"width": 2000, "height": 3000, "resized_width": 800, "resized_height": 1200}
>>> for box_format in ("qwen3-vl", "qwen2.5-vl"):
...     print(gr.get_box_format(box_format).space.name, gr.parse_boxes(text, box_format, **image).boxes.tolist())
norm1000 [[200.0, 600.0, 600.0, 1200.0]]
resized_pixel [[250.0, 500.0, 750.0, 1000.0]]

```

A wrong declaration shifts or scales every box, and every reward is near 0. The reward then warns once, and `inspect`
says [which declaration would fit](scoring.md#when-is-a-space-contradicted).

| space | numbers |
|---|---|
SPACE_ROWS

### Two frames of one image

The processor usually shrinks an image before the model sees it. Boxes in thousandths stay the same. Qwen2.5-VL counts
pixels of the *resized* image, so the reward needs `resized_width` and `resized_height`; the trainer
[computes them](training.md#image-size). Reference boxes (ground truth) are always in pixels of the original image.
Models that see the image padded to a square count parts of that square: `pad1` is not `norm1`.

## Formats

The answers are for one box, `BOX`, labelled LABEL, on an image of WIDTH × HEIGHT pixels that the
processor resized to RESIZED_WIDTH × RESIZED_HEIGHT (⏎ line feed, ⇥ tab), and for an image with nothing to find.
COARSE

- In brackets: each `model_type` for which the trainer picks the format by itself.
- Order: `x1, y1, x2, y2`, unless another is named.
- Trains: *GRPO*, by `train`, with or without `sft` before it; *no*: both refuse it, for a reason [below](#not-trained);
  –: as the model on which it was built. Where TRL does not suit a model, the check before the first step says so.
- Source: *read*, looked up in November 2026; *named*, not looked up again; *second hand*, not said by the makers.
  `grounding_rewards/parsing/formats.toml` says where.
- Trainers decode with `skip_special_tokens=True`. That removes the tags (boxes are still read, labels are not clean) of
  TAGS.
  It removes the boxes of
  NO_BOXES:
  [pass the tokenizer](training.md#box-formats).

| name | models | trains | space, order | answer | nothing | source |
|---|---|---|---|---|---|---|
FORMAT_ROWS

### Not trained

`train` and `sft` refuse these before they load weights; `evaluate` takes those that transformers can load.

OBSTACLES

Also read:

| models | declare | source |
|---|---|---|
ALSO_ROWS

*Written by `python scripts/docs/write_formats.py` from `grounding_rewards/parsing/formats.toml`.*

## A format of your own

Start from any format (`json` and `brackets` exist for this), and declare what differs, in Python or YAML
(`box_format: {syntax: json, keys: [region], order: xywh, space: pixel}`):

```python
>>> mine = {"syntax": "json", "keys": ["region"], "order": "xywh", "space": "pixel"}
>>> gr.parse_boxes('{"region": [10, 20, 30, 40], "label": "mass"}', box_format=mine).boxes.tolist()
[[10.0, 20.0, 40.0, 60.0]]
>>> gr.format_boxes([[10, 20, 40, 60]], mine)
'```json\\n[\\n\\t{"region": [10, 20, 30, 40]}\\n]\\n```'

```

| field | values |
|---|---|
| `syntax` | the format to start from |
| `space` | a [space](#spaces-what-the-numbers-mean) |
| `order` | ORDER_NAMES |
| `keys` | the JSON keys that hold a box, and no others; without it, all that are in use |
| `scope` | SCOPES |
| `decimals` | digits behind the point in written answers |

Spaces that a family's tokens cannot express are refused: `paligemma` in pixels, `kosmos-2` in anything but its grid.
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
    ("MiniMax-M3", "kimi-vl", '[{"box": [0.2, 0.2, 0.4, 0.6], "label": "mass"}]', "second hand: programs that call it"),
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


#: Words of a source that say what it is; any other source is named, and was not read anew.
KINDS = ("second hand", "read")


def code(text: str) -> str:
    """Text as code in a cell of a table."""
    if not text:
        return "*(blank)*"
    shown = text.replace("\n", "⏎").replace("\t", "⇥")
    if "`" in shown or "|" in shown:
        return f"<code>{html.escape(shown, quote=False).replace('|', '&#124;')}</code>"
    return f"`{shown}`"


def row(fmt: BoxFormat) -> str:
    types = ", ".join(f"`{name}`" for name in MODEL_TYPES.get(fmt.name, ()))
    models = f"{fmt.family} ({types})" if types else fmt.family
    patches = fmt.syntax.patches
    space = f"`{fmt.space.name}`" if not patches else f"first and last cell of {patches} × {patches}"
    if fmt.order != "xyxy":
        space += f", {fmt.order}"
    written = code(format_boxes(BOXES[:1], fmt, labels=LABELS[:1], **SIZES))
    nothing = code(format_boxes([], fmt, **SIZES))
    obstacles = [obstacle_of(name) for name in MODEL_TYPES.get(fmt.name, ())]
    trains = "–" if not obstacles else "no" if all(obstacles) else "GRPO"
    kinds = dict.fromkeys(map(kind_of, SOURCES.get(fmt.name, ())))
    return f"| `{fmt.name}` | {models} | {trains} | {space} | {written} | {nothing} | {', '.join(kinds) or '–'} |"


def kind_of(source: str) -> str:
    return next((kind for kind in KINDS if re.search(rf"\b{kind}\b", source)), "named")


def obstacle_of(model_type: str) -> str | None:
    """Why models of a type are not trained; None if they are."""
    if model_type not in CONFIG_MAPPING:
        return "transformers does not know it"
    return training_obstacle(AutoConfig.for_model(model_type))


def obstacles() -> str:
    """A line for each reason why models are not trained."""
    types_of: dict[str, list[str]] = {}
    for model_type in chain.from_iterable(MODEL_TYPES.values()):
        if reason := obstacle_of(model_type):
            types_of.setdefault(reason, []).append(model_type)
    return "\n".join(f"- {', '.join(f'`{name}`' for name in types)}: {reason}." for reason, types in types_of.items())


def also_read(models: str, declared: str | dict[str, str], source: str) -> str:
    named = declared if isinstance(declared, str) else f"{{{', '.join(f'{key}: {declared[key]}' for key in declared)}}}"
    return f"| {models} | `{named}` | {source} |"


def moved(fmt: BoxFormat) -> float:
    """By how many pixels a corner of the examples moves at most when they are written and read back."""
    read = parse_boxes(format_boxes(BOXES, fmt, labels=LABELS, **SIZES), fmt, **SIZES).boxes
    return max(
        abs(now - then) for box, again in zip(BOXES, read, strict=True) for then, now in zip(box, again, strict=True)
    )


def names(those: Iterable[str]) -> str:
    *most, last = (f"`{name}`" for name in those)
    return f"{', '.join(most)} and {last}"


def page() -> str:
    formats = [get_box_format(name) for name in list_box_formats()]
    coarse = [f"{moved(fmt):.3g} in `{fmt.name}`" for fmt in formats if moved(fmt) > 1]
    parts = {
        "SPACE_ROWS": "\n".join(f"| `{name}` | {space.meaning} |" for name, space in SPACES.items()),
        "BOX": ", ".join(f"{number:g}" for number in BOXES[0]),
        "LABEL": LABELS[0],
        "RESIZED_WIDTH": str(SIZES["resized_width"]),
        "RESIZED_HEIGHT": str(SIZES["resized_height"]),
        "WIDTH": str(SIZES["width"]),
        "HEIGHT": str(SIZES["height"]),
        "COARSE": f"Rounding moves a corner by at most a pixel here, but by {' and '.join(coarse)}.",
        "TAGS": names(fmt.name for fmt in formats if fmt.stripped == "tags"),
        "NO_BOXES": names(fmt.name for fmt in formats if fmt.stripped == "boxes"),
        "FORMAT_ROWS": "\n".join(map(row, formats)),
        "OBSTACLES": obstacles(),
        "ALSO_ROWS": "\n".join(also_read(models, declared, source) for models, declared, _, source in ALSO_READ),
        "ORDER_NAMES": ", ".join(f"`{name}` ({', '.join(order.numbers)})" for name, order in ORDERS.items()),
        "SCOPES": SCOPES,
    }
    return re.sub(rf"\b({'|'.join(parts)})\b", lambda mark: parts[mark[1]], PAGE_TEXT)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 if the page is out of date")
    arguments = parser.parse_args()
    sys.exit(write_or_check(PAGE, page(), check=arguments.check))


if __name__ == "__main__":
    main()
