"""`grounding-rewards evaluate` as a script, for launchers: accelerate launch scripts/evaluate.py --model …"""

from __future__ import annotations

import sys

from grounding_rewards.cli import main

if __name__ == "__main__":
    sys.exit(main(["evaluate", *sys.argv[1:]]))
