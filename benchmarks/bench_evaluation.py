"""How long metrics take: `evaluate` and `diff` of many images, beside pycocotools, which has average precision alone.

    python benchmarks/bench_evaluation.py --images 12000

The images are those of simulate_metrics.py, with a confidence and a label on every box. pycocotools gives no
intervals, and no other metric; it is left out where it is not installed. Beside it stands what comes first where a log
is evaluated: reading and scoring the answers, clean and mixed ones (compare.py), as ratios to `json.loads` of the rows.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import resource
import time
from collections.abc import Callable, Sequence

import numpy as np
from compare import clean, mixed, rows

import grounding_rewards as gr
from grounding_rewards.metrics.comparison import compare_runs
from grounding_rewards.metrics.evaluation import Measures, evaluate
from grounding_rewards.metrics.prediction import Prediction
from grounding_rewards.metrics.read_predictions import read_predictions
from scripts.studies.simulate_metrics import LABELS, Model, answer, draw_patients


def seconds(run: Callable[[], object]) -> float:
    """CPU seconds, which do not depend on what else the machine does."""
    started = time.process_time()
    run()
    return time.process_time() - started


def with_pycocotools(images: Sequence[Prediction]) -> None:
    from pycocotools.coco import COCO
    from pycocotools.cocoeval import COCOeval

    def boxes(of: str) -> list[dict[str, object]]:
        return [
            {
                "image_id": k,
                "category_id": LABELS.index(label),
                "bbox": [box[0], box[1], box[2] - box[0], box[3] - box[1]],
                "area": (box[2] - box[0]) * (box[3] - box[1]),
                "iscrowd": 0,
                "score": score,
            }
            for k, image in enumerate(images)
            for box, label, score in zip(
                getattr(image, of).tolist(),
                getattr(image, f"{of}_labels"),
                image.pred_scores.tolist() if of == "pred" else [1.0] * len(image.gt),
                strict=True,
            )
        ]

    with contextlib.redirect_stdout(io.StringIO()):
        references = COCO()
        references.dataset = {
            "images": [{"id": k} for k in range(len(images))],
            "categories": [{"id": k} for k in range(len(LABELS))],
            "annotations": [{"id": k + 1, **one} for k, one in enumerate(boxes("gt"))],
        }
        references.createIndex()
        found = COCOeval(references, references.loadRes(boxes("pred")), "bbox")
        found.evaluate()
        found.accumulate()
        found.summarize()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=12_000, help="default: %(default)s")
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    patients = draw_patients(rng, options.images // 2)
    a, b = (answer(rng, patients, Model(skill)) for skill in (0.8, 1.4))
    runs: dict[str, Callable[[], object]] = {
        "evaluate, one system": lambda: evaluate({"model": a}, Measures("R3")),
        "evaluate, three systems": lambda: evaluate({"model": a, "other": b, "again": a}, Measures("R3")),
        "diff": lambda: compare_runs(a, b),
    }
    with contextlib.suppress(ImportError):
        import pycocotools  # noqa: F401

        runs["pycocotools, AP alone"] = lambda: with_pycocotools(a)
    took = {name: seconds(run) for name, run in runs.items()}
    reward = gr.get_reward("R3", box_format="qwen3-vl")
    for write in (clean, mixed):
        made = rows(write, (0, 1, 2, 3), options.images)
        lines = [json.dumps(row) for row in made]
        loads = seconds(lambda lines=lines: [json.loads(line) for line in lines])
        texts = [[row["completion"]] for row in made]
        read = seconds(lambda made=made, texts=texts: read_predictions(made, texts, reward))
        print(f"{read / loads:.1f} × json.loads ({1e6 * loads / len(made):.1f} µs) to read {write.__name__} answers")
    for name, one in took.items():
        print(f"{name:24} {one:6.1f} s for {len(a)} images, {1e3 * one / len(a):.2f} ms an image")
    # Linux counts kilobytes.
    print(f"at most {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MB in all")
    if "pycocotools, AP alone" in took:
        ratio = took["evaluate, one system"] / took["pycocotools, AP alone"]
        print(f"evaluate takes {ratio:.1f} times what pycocotools takes for AP alone")


if __name__ == "__main__":
    main()
