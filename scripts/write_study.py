"""Write docs/study.md, with its plots, from the results that are kept beside it; nothing is trained.

    python scripts/write_study.py

Every folder of docs/study/ that has a study.yaml becomes a part of the page. To add a study, copy study.yaml,
images.json, starts/ and results/ of its folder there.
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path

import yaml

from grounding_rewards.common.whole_files import write_whole
from grounding_rewards.study.findings import StudyResult, find
from grounding_rewards.study.folder import read_study
from grounding_rewards.study.report import plots, render_study_markdown

_PAGE = """\
# Which reward? Studies

R3. In small studies (1.2 million parameters, 5 seeds, one initial checkpoint a kind) R2, R4, R5 and soft_f1 were within
0.02 mean IoU of R3 from a good checkpoint; R1 was worse. If few boxes reach IoU 0.5, run `signal` first: R3 then
favours precision, soft_f1 recall. SFT gained more in distribution and lost 0.11 under image shift, where R3 lost
nothing. On the lungs, from the weak start, no run beat a constant box. Untested at 3B.

Trainings with GRPO that differ in the reward alone: the same start, images, steps and settings, several seeds each, and
controls that nobody expects to teach. What follows is written by a script from the results in `docs/study/`. Made by

    python scripts/write_study.py

and the results by `grounding-rewards study` with the YAML that is named. How often such intervals hold what they should
is in [simulated_study.md](simulated_study.md).

{studies}

## What this does not show

{limits}
"""

_LIMITS = (
    "The models have {parameters} parameters. What teaches them need not be what teaches a model a thousand times as "
    "large, whose answers vary otherwise and which has seen more before. The same YAML runs for such a model.",
    "Drawn images are easier than patients: findings have clear edges, each kind looks alike, and nobody disagrees "
    "about the references. Lungs are large, are there on nearly every image and in nearly the same place.",
    "Hyper-parameters other than the reward were not tuned for each arm: learning rate, β of the KL term, and "
    "temperature may suit one reward better than another.",
    "The declared metric decides; all else is for looking at. What is not shown is not shown to be equal: see what the "
    "seeds can find.",
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--studies", type=Path, default=Path("docs/study"), help="folder of studies")
    parser.add_argument("--output", type=Path, default=Path("docs/study.md"))
    arguments = parser.parse_args()
    folders = sorted(path.parent for path in arguments.studies.glob("*/study.yaml"))
    parts = []
    for folder in folders:
        found = find(read_study(folder), on_progress=lambda what, name=folder.name: print(f"{name}: {what}"))
        parts.append(study_part(found, folder, arguments.output.parent))
    limits = "\n".join(f"- {line.format(parameters=parameters())}" for line in _LIMITS)
    write_whole(arguments.output, _PAGE.format(studies="\n\n".join(parts), limits=limits))


def study_part(found: StudyResult, folder: Path, beside: Path) -> str:
    """One study as a part of the page; its plots go into its folder."""
    lines = [f"## {found.study.name}", render_study_markdown(found, level=3).rstrip()]
    for one in plots(found):
        file = folder / f"{one.name}.png"
        one.save(file, "png", dpi=150)
        lines.append(f"![{one.title}]({file.relative_to(beside).as_posix()})\n\n{one.note}")
    settings = yaml.safe_load((folder / "study.yaml").read_text(encoding="utf-8"))
    lines.append(f"Images: {', '.join(map(str, dict.fromkeys(one['dataset'] for one in settings['sets'].values())))}.")
    return "\n\n".join(lines)


def parameters() -> str:
    """How many the tiny model has, in words."""
    from safetensors import safe_open

    count = 0
    for file in sorted((Path(__file__).parents[1] / "assets" / "tiny_vlm").glob("*.safetensors")):
        with safe_open(file, "numpy") as weights:
            count += sum(math.prod(weights.get_slice(name).get_shape()) for name in weights.keys())  # noqa: SIM118
    return f"{count / 1e6:.1f} million"


if __name__ == "__main__":
    main()
