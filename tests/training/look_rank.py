"""One of several processes of a run with `look_closer`; arguments: the model's folder, and one to write to."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import torch

from grounding_rewards.data.synthetic import synthetic_dataset
from tests.training.test_grpo import config, logged
from tests.training.test_look_closer import FirstTurnsAreWritten


def main(model: str, folder: Path) -> None:
    torch.set_num_threads(1)
    rank = int(os.environ["RANK"])
    args = config(folder, max_steps=2, max_completion_length=700, learning_rate=1e-3)
    args.eval_strategy, args.eval_steps, args.per_device_eval_batch_size = "steps", 2, 4
    trainer = FirstTurnsAreWritten(
        model,
        "R4",
        args,
        synthetic_dataset("train", 8),
        eval_dataset=synthetic_dataset("validation", 4),
        look_closer={"looks": 1, "cost": 0.5, "bonus": 0.1},
    )
    trainer.calls = trainer.calls[::-1] if rank else trainer.calls
    trainer.seen = []
    trainer.train()
    told = {
        "seen": trainer.seen[:2],
        "log": logged(trainer),
        "evaluations": [entry for entry in trainer.state.log_history if "eval_reward" in entry],
        "weights": sum(float(value.detach().double().abs().sum()) for value in trainer.model.parameters()),
    }
    (folder / f"rank{rank}.json").write_text(json.dumps(told))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
