"""Load and call our adapters by other trainers' own code, each trainer installed in an environment of its own.

python scripts/checks/check_integrations.py                       check all, and write the table of docs/trainers.md
python scripts/checks/check_integrations.py verl openrlhf         check these; the rows of others stay as they are
python scripts/checks/check_integrations.py --run                 verl and ms-swift also train, on the processor
python scripts/checks/check_integrations.py --environments DIR    keep the environments there, and use those there

It installs from the package registry, several gigabytes in all, by pip, whose own variables apply: PIP_CONSTRAINT with
`torch==…+cpu`, for example, spares the libraries of graphics cards. No model is downloaded. The exit status is 1 if
anything failed.
"""

from __future__ import annotations

import argparse
import asyncio
import datetime
import json
import math
import os
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from scripts.checks.environments import (
    REPOSITORY,
    TORCH,
    TORCHVISION,
    create,
    install,
    install_vllm,
    let_torchvision_load,
    packages,
)
from scripts.checks.trainer_runs import PARAMETERS, REWARD, RUNS, train
from scripts.docs.page_parts import between, marks_of, replace_part

PAGE = REPOSITORY / "docs" / "trainers.md"
MARKS = marks_of("check_integrations")
HEAD = ("engine", "mode", "what ran", "on what", "mean of abs(Δp)", "failed, and why")
LOADED = "loaded, not trained"
MODEL = REPOSITORY / "assets" / "tiny_vlm"
#: Once for all environments, as they are large; a trainer that wants other versions installs its own. The torch is that
#: of vLLM's build for processors.
SHARED = ("numpy", "scipy", TORCH, TORCHVISION, "transformers", "datasets", "pillow", "aiohttp", "tqdm")


class Trainer(NamedTuple):
    """How a trainer is installed.

    Attributes:
        package: its name in the registry, None where it has none.
        beside: packages to install with it.
        alone: whether it is installed without what it depends on, which needs a graphics card or a compiler.
        vllm: whether its training takes answers from vLLM.
    """

    package: str | None
    beside: tuple[str, ...] = ()
    alone: bool = False
    vllm: bool = False


TRAINERS: Mapping[str, Trainer] = {
    "verl": Trainer("verl", ("qwen-vl-utils", "cachetools"), vllm=True),
    # It imports msgspec, and does not ask for it.
    "ms-swift": Trainer("ms-swift", ("qwen-vl-utils", "msgspec")),
    "openrlhf": Trainer("openrlhf", ("sympy", "pylatexenc"), alone=True),
    "easyr1": Trainer(None),
}

Step = tuple[str, Callable[[], None]]


# Inside the environment of a trainer: what is tried, step by step.


def _expected() -> tuple[list[Any], list[float]]:
    """The hard texts of the tests, and what the reward gives for them here."""
    from grounding_rewards import get_reward
    from tests.integrations.hard_cases import CASES

    cases = list(CASES.values())
    reward = get_reward(REWARD, **PARAMETERS)
    return cases, [reward([one.text], ground_truth=[one.ground_truth])[0] for one in cases]


def _same(found: Sequence[float], expected: Sequence[float]) -> None:
    assert all(map(math.isfinite, found)), f"not finite: {found}"
    assert list(found) == list(expected), f"got {list(found)}, expected {list(expected)}"


def _plugin(trainer: str, folder: Path) -> Path:
    """The file that `grounding-rewards plugin` writes."""
    from grounding_rewards.integrations.plugin_files import plugin

    path = folder / "boxes.py"
    path.write_text(plugin(trainer, REWARD, PARAMETERS, path).content or "", encoding="utf-8")
    return path


def verl_steps(folder: Path) -> Iterator[Step]:
    """What runs of verl on a processor without a graphics card."""
    from omegaconf import OmegaConf

    ours = "pkg://grounding_rewards.integrations"
    config = OmegaConf.create(
        {
            "actor_rollout_ref": {"model": {"path": str(MODEL), "tokenizer_path": None}},
            "reward": {
                "custom_reward_function": {
                    "path": f"{ours}.verl",
                    "name": "compute_score",
                    "reward_kwargs": {"reward": REWARD, **PARAMETERS},
                },
                "reward_manager": {"source": "register", "name": "naive"},
                "reward_model": {"enable": False},
                "sandbox_fusion": None,
            },
        }
    )

    def function() -> None:
        from verl.trainer.ppo.reward import get_custom_reward_fn

        score = get_custom_reward_fn(config)
        cases, expected = _expected()
        told = [
            score(data_source="images", solution_str=one.text, ground_truth=one.ground_truth, extra_info={})
            for one in cases
        ]
        _same([one["score"] for one in told], expected)
        assert len({tuple(one) for one in told}) == 1, "other keys for other samples"

    def loop() -> None:
        _same_in_the_loop(config)

    def tokens() -> None:
        manager = {"source": "importlib", "name": "GroundingRewardManager", "module": {"path": f"{ours}.verl"}}
        _same_in_the_loop(OmegaConf.merge(config, {"reward": {"reward_manager": manager}}))

    yield "`get_custom_reward_fn` with `pkg://`, every hard text", function
    yield "a batch of them, of at most 512 tokens each, through `RewardLoopWorker` without Ray, manager `naive`", loop
    yield "the same with our `GroundingRewardManager`", tokens
    yield "`RLHFDataset` reads the table; sizes after its images and processor", lambda: _verl_table(folder)


def _same_in_the_loop(config: Any) -> None:
    """One batch, as the agent loop hands it to verl's reward worker."""
    import numpy as np
    import torch
    from verl import DataProto
    from verl.experimental.reward_loop.reward_loop import RewardLoopWorker

    from grounding_rewards import get_reward

    worker = RewardLoopWorker(config)
    cases = [one for one in _expected()[0] if "\ud83d" not in one.text]
    ids = [worker.input_tokenizer(one.text, add_special_tokens=False)["input_ids"][:512] for one in cases]
    length = max(map(len, ids))
    pad = worker.input_tokenizer.pad_token_id or 0
    responses = torch.tensor([one + [pad] * (length - len(one)) for one in ids])
    seen = torch.tensor([[1] * len(one) + [0] * (length - len(one)) for one in ids])
    prompts = torch.full((len(cases), 2), pad)
    rows = {
        "data_source": ["images"] * len(cases),
        "reward_model": [{"style": "rule", "ground_truth": one.ground_truth} for one in cases],
        "extra_info": [{"index": k} for k in range(len(cases))],
    }
    data = DataProto.from_dict(
        tensors={
            "prompts": prompts,
            "responses": responses,
            "attention_mask": torch.cat([torch.ones_like(prompts), seen], dim=1),
        },
        non_tensors={name: np.array(values, dtype=object) for name, values in rows.items()},
    )
    told = asyncio.get_event_loop().run_until_complete(worker.compute_score_batch(data))
    reward = get_reward(REWARD, **PARAMETERS)
    texts = [worker.input_tokenizer.decode(one, skip_special_tokens=True) for one in ids]
    _same([one["reward_score"] for one in told], reward(texts, ground_truth=[one.ground_truth for one in cases]))
    assert len({tuple(one["reward_extra_info"]) for one in told}) == 1, "other keys for other samples"


def _verl_table(folder: Path) -> None:
    from omegaconf import OmegaConf
    from transformers import AutoProcessor
    from verl.utils import hf_tokenizer
    from verl.utils.dataset.rl_dataset import RLHFDataset

    processor = AutoProcessor.from_pretrained(str(MODEL))
    settings = {"filter_overlong_prompts": False, "cache_dir": str(folder / "cache")}
    rows = RLHFDataset(
        [str(folder / "train.parquet")], hf_tokenizer(str(MODEL)), OmegaConf.create(settings), processor=processor
    )
    assert len(rows), "no rows"
    for row in rows:
        truth = json.loads(row["reward_model"]["ground_truth"])
        images, _, _ = rows._process_multi_modal_info(row["raw_prompt"], rows.image_patch_size, None)
        _check_size(processor, images, truth)


def _check_size(processor: Any, images: Sequence[Any], truth: Mapping[str, Any], **options: Any) -> None:
    """The size that a trainer's images have behind the processor is the one in the ground truth."""
    image_processor = processor.image_processor
    _, height, width = image_processor(images=list(images), return_tensors="pt", **options)["image_grid_thw"][
        0
    ].tolist()
    found = (width * image_processor.patch_size, height * image_processor.patch_size)
    assert found == (truth["resized_width"], truth["resized_height"]), f"{found} is not that of {truth}"


def swift_steps(folder: Path) -> Iterator[Step]:
    """What runs of ms-swift."""

    def loaded() -> Any:
        from swift.rewards import orms
        from swift.utils import import_external_file

        import_external_file(str(_plugin("ms-swift", folder)))
        return orms[REWARD](args=None)

    def call() -> None:
        orm = loaded()
        cases, expected = _expected()
        _same(orm([one.text for one in cases], ground_truth=[one.ground_truth for one in cases]), expected)

    def table() -> None:
        from swift.dataset import load_dataset

        # As its arguments of GRPO have it.
        rows, _ = load_dataset(str(folder / "train.jsonl"), num_proc=1, remove_unused_columns=False)
        first = rows[0]
        assert "<image>" in first["messages"][0]["content"], first
        assert json.loads(first["ground_truth"])["boxes"] is not None
        orm = loaded()
        assert len(orm(["[]"] * len(rows), ground_truth=list(rows["ground_truth"]))) == len(rows)

    def sizes() -> None:
        from qwen_vl_utils import fetch_image
        from transformers import AutoProcessor

        processor = AutoProcessor.from_pretrained(str(MODEL))
        for line in (folder / "train.jsonl").read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            image = fetch_image({"image": row["images"][0]}, image_patch_size=processor.image_processor.patch_size)
            _check_size(processor, [image], json.loads(row["ground_truth"]), do_resize=False)

    yield "`import_external_file`, the class in `orms`, every hard text", call
    yield "`load_dataset` reads the table, and its columns reach the class", table
    yield "sizes after `qwen_vl_utils.fetch_image`, called as its template does", sizes


def openrlhf_steps(folder: Path) -> Iterator[Step]:
    """What runs of OpenRLHF."""

    def call() -> None:
        from openrlhf.utils.agent import SingleTurnAgentExecutor

        executor = SingleTurnAgentExecutor(str(_plugin("openrlhf", folder)))
        prompt = '<|im_start|>user\nFor example [{"bbox_2d": [1, 2, 3, 4]}]<|im_end|>\n<|im_start|>assistant\n'
        cases, expected = _expected()

        async def fetch() -> list[float]:
            found = []
            for one in cases:
                told = await executor._fetch_rewards_via_func([prompt + one.text], [prompt], [one.ground_truth])
                found.append(float(told[0]["rewards"]))
            return found

        # Its rewards are tensors of 32 bits.
        found = asyncio.new_event_loop().run_until_complete(fetch())
        assert all(abs(one - other) < 1e-6 for one, other in zip(found, expected, strict=True)), (found, expected)

    def table() -> None:
        from types import SimpleNamespace

        from openrlhf.datasets import PromptDataset
        from openrlhf.datasets.utils import blending_datasets
        from transformers import AutoProcessor

        data = {"input_key": "prompt", "label_key": "label", "image_key": "images", "apply_chat_template": True}
        strategy = SimpleNamespace(
            args=SimpleNamespace(data=SimpleNamespace(**data)), is_rank_0=lambda: True, print=print
        )
        read = blending_datasets(str(folder / "train.jsonl"), None, strategy)
        rows = PromptDataset(read, AutoProcessor.from_pretrained(str(MODEL)), strategy)
        source, prompt, label, images = rows[0]
        assert (source, len(images), Path(images[0]).is_file()) == ("synthetic", 1, True)
        assert prompt
        assert "boxes" in json.loads(label)

    def sizes() -> None:
        from openrlhf.utils.vlm_utils import load_images
        from transformers import AutoProcessor

        processor = AutoProcessor.from_pretrained(str(MODEL))
        for line in (folder / "train.jsonl").read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            _check_size(processor, load_images(row["images"]), json.loads(row["label"]))

    yield "`SingleTurnAgentExecutor` loads the file and calls it, every hard text", call
    yield "`blending_datasets` and `PromptDataset` read the table", table
    yield "sizes after its `load_images` and the processor", sizes


STEPS: Mapping[str, Callable[[Path], Iterator[Step]]] = {
    "verl": verl_steps,
    "ms-swift": swift_steps,
    "openrlhf": openrlhf_steps,
}


def inside(trainer: str, folder: Path) -> None:
    """Try every step, and write to `folder/report.json` which ran and why others did not."""
    ran: list[str] = []
    failed: list[str] = []
    try:
        for name, step in STEPS[trainer](folder):
            try:
                step()
                ran.append(name)
            # Whatever goes wrong belongs into the table.
            except BaseException as error:
                traceback.print_exc()
                failed.append(f"{name}: {_short(error)}")
    except Exception as error:
        traceback.print_exc()
        failed.append(_short(error))
    (folder / "report.json").write_text(json.dumps({"ran": ran, "failed": failed}), encoding="utf-8")


def _short(error: BaseException) -> str:
    line = (str(error).strip().splitlines() or [""])[0]
    return f"{type(error).__name__}: {line}"[:160]


# Outside: environments, tables, and the page.


def installed(trainer: str, environments: Path, *, run: bool = False) -> Path:
    """The Python of an environment with a trainer, and for `run` with what its training needs.

    Raises:
        subprocess.CalledProcessError: it could not be installed.
    """
    shared = create(environments / "shared")
    install(shared, *SHARED)
    let_torchvision_load(shared)
    python = create(environments / trainer)
    (packages(python) / "shared.pth").write_text(f"{packages(shared)}\n", encoding="utf-8")
    how = TRAINERS[trainer]
    install(python, *(["--no-deps"] if how.alone else []), "--upgrade", str(how.package))
    if how.beside:
        install(python, *how.beside)
    if run and how.vllm:
        # What vLLM needs has to leave the trainer the versions that it needs.
        install_vllm(python, str(how.package))
    return python


def versions(python: Path, names: Sequence[str]) -> dict[str, str]:
    """The versions of packages in an environment."""
    code = "import sys; from importlib.metadata import version; print(*map(version, sys.argv[1:]))"
    done = subprocess.run([python, "-c", code, *names], capture_output=True, text=True, check=True)
    return dict(zip(names, done.stdout.split(), strict=True))


def write_table(trainer: str, folder: Path, model: Path = MODEL) -> list[str]:
    """Twelve drawn images in the table of a trainer, boxes in resized pixels; gives the lines of its configuration."""
    from grounding_rewards.exchange.trainer_tables import write_trainer_table
    from grounding_rewards.images.resize import load_processor
    from grounding_rewards.prepare.load import load_split

    images = load_split("synthetic", "train", max_images=12)
    names = {"split": "train", "source": "synthetic", "box_format": "qwen2.5-vl"}
    return list(write_trainer_table(images, trainer, folder, **names, processor=load_processor(str(model)))["lines"])


def check(trainer: str, python: Path) -> list[str]:
    """The row of a trainer that loads and calls, and does not train."""
    with tempfile.TemporaryDirectory() as folder:
        write_table(trainer, Path(folder))
        variables = os.environ | {"PYTHONPATH": str(REPOSITORY), "HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": ""}
        words = [python, __file__, "--inside", trainer, folder]
        done = subprocess.run(words, env=variables, cwd=REPOSITORY, check=False)
        report = {"ran": [], "failed": [f"the process ended with {done.returncode}"]}
        if (file := Path(folder, "report.json")).exists():
            report = json.loads(file.read_text(encoding="utf-8"))
    beside = ("torch", "transformers", "datasets")
    return row(trainer, LOADED, report["ran"], report["failed"], versions(python, (trainer, *beside)))


def check_training(trainer: str, python: Path) -> list[str]:
    """The row of a trainer that trains."""
    from scripts.checks.qwen_numbers import save_with_qwen_numbers

    with tempfile.TemporaryDirectory() as temporary:
        model, table, folder = (Path(temporary, name) for name in ("model", "table", "run"))
        folder.mkdir()
        save_with_qwen_numbers(MODEL, model)
        run = RUNS[trainer](model, write_table(trainer, table, model), folder)
        ran, failed, difference = [], [], "–"
        try:
            sentence, difference = train(run, python.parent, model, folder)
            ran.append(sentence)
        except Exception as error:
            traceback.print_exc()
            failed.append(_short(error))
        return row(trainer, run.mode, ran, failed, versions(python, (trainer, *run.packages)), difference)


def row(
    trainer: str,
    mode: str,
    ran: Sequence[str],
    failed: Sequence[str],
    version: Mapping[str, str],
    difference: str = "–",
) -> list[str]:
    """The cells of a row.

    Args:
        trainer: in :data:`TRAINERS`.
        mode: what it did.
        ran: what passed.
        failed: what did not, and why.
        version: by package, that of the trainer among them.
        difference: between rollout and training.
    """
    others = ", ".join(f"{name} {number}" for name, number in version.items() if name != trainer)
    where = f"processor; {others}; {datetime.date.today().isoformat()}" if version else "–"
    engine = f"{trainer} {version.get(trainer, '')}".strip()
    cells = [engine, mode, "; ".join(ran) or "–", where, difference, "; ".join(failed) or "–"]
    return [cell.replace("|", "\\|").replace("\n", " ") for cell in cells]


def read_rows(page: str) -> dict[tuple[str, str], list[str]]:
    """The rows of the table between the marks, by trainer and mode."""
    lines = between(page, MARKS).splitlines()
    rows = [line.strip("| ").split(" | ") for line in lines if line.startswith("| ")]
    return {_key(cells): cells for cells in rows if _key(cells)[0] in TRAINERS}


def _key(cells: Sequence[str]) -> tuple[str, str]:
    return cells[0].split()[0], cells[1]


def with_rows(page: str, rows: Mapping[tuple[str, str], Sequence[str]]) -> str:
    """The page with the table of these rows between the marks.

    Raises:
        ValueError: the page has no marks.
    """
    ordered = [cells for trainer in TRAINERS for (name, _), cells in rows.items() if name == trainer]
    lines = [HEAD, ["---"] * len(HEAD), *ordered]
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    return replace_part(page, MARKS, f"\n{table}\n")


def rows_of(trainer: str, environments: Path, *, run: bool) -> Iterator[list[str]]:
    """The rows of a trainer, each when it has been tried."""
    if TRAINERS[trainer].package is None:
        yield row(trainer, "not tried: not in the package registry", [], [], {})
        return
    try:
        python = installed(trainer, environments, run=run)
    except subprocess.CalledProcessError as error:
        yield row(trainer, LOADED, [], [f"pip could not install it (exit status {error.returncode})"], {})
        return
    yield check(trainer, python)
    if run and trainer in RUNS:
        yield check_training(trainer, python)


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trainers", nargs="*", metavar="TRAINER", help=f"of {', '.join(TRAINERS)} (default: all)")
    parser.add_argument("--run", action="store_true", help="two steps of GRPO by those that train on a processor")
    parser.add_argument("--environments", type=Path, metavar="DIR", help="default: temporary, and removed at the end")
    parser.add_argument("--inside", nargs=2, metavar=("TRAINER", "DIR"), help=argparse.SUPPRESS)
    arguments = parser.parse_args(words)
    if arguments.inside:
        inside(arguments.inside[0], Path(arguments.inside[1]))
        return 0
    if unknown := set(arguments.trainers) - set(TRAINERS):
        parser.error(f"Expected names of {', '.join(TRAINERS)} for TRAINER, got {', '.join(sorted(unknown))}.")
    failures = 0
    with tempfile.TemporaryDirectory() as temporary:
        environments = arguments.environments or Path(temporary)
        for trainer in arguments.trainers or TRAINERS:
            for cells in rows_of(trainer, environments.absolute(), run=arguments.run):
                print(*(f"{name}: {cell}" for name, cell in zip(HEAD, cells, strict=True)), sep="\n")
                page = PAGE.read_text(encoding="utf-8")
                PAGE.write_text(with_rows(page, read_rows(page) | {_key(cells): cells}), encoding="utf-8")
                failures += cells[-1] != "–"
    return int(failures > 0)


if __name__ == "__main__":
    sys.exit(main())
