"""Train with GRPO: `accelerate launch scripts/train_grpo.py --config configs/demo/grpo.yaml`.

`--help` lists every option; each value of the YAML file can be overridden on the command line.
"""

from grounding_rewards.training.arguments import parse_grpo_arguments
from grounding_rewards.training.run import train_grpo

if __name__ == "__main__":
    train_grpo(*parse_grpo_arguments())
