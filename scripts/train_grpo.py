"""`grounding-rewards train` as a script, for launchers: accelerate launch scripts/train_grpo.py --config …"""

from __future__ import annotations

import sys

from grounding_rewards.cli import main

if __name__ == "__main__":
    sys.exit(main(["train", *sys.argv[1:]]))
