"""List the configurations that come with the package, or copy them to be edited.

Every command finds them by these names from any folder: `grounding-rewards train --config configs/demo/grpo.yaml` needs
no copy. Other programs do, `accelerate launch --config_file` and `lmms-eval --include_path` among them, and so do
you, if you want to change more than a few options.

examples:
  grounding-rewards configs                # names, and what each is
  grounding-rewards configs --out .        # configs/ in this folder, to edit
"""

from __future__ import annotations

import shutil
from pathlib import Path

from grounding_rewards.commands.console import output_console, say
from grounding_rewards.common.atomic_files import check_new
from grounding_rewards.common.config_files import find_shipped, shipped_names


def run(*, out: Path | None = None) -> int:
    """List or copy.

    Args:
        out: copy them to configs/ in this folder
    """
    from rich.table import Table

    names = shipped_names("configs/**/*.*")
    if out is None:
        table = Table(box=None, show_header=False, pad_edge=False)
        for name in names:
            if name.endswith(".yaml"):
                table.add_row(name, _first_sentence(Path(find_shipped(name))))
        output_console(120).print(table)
        return 0
    copies = {name: Path(out, name) for name in names}
    for copy in copies.values():
        check_new(copy, "--out", "Choose another folder, or remove what is there: nothing is written over.")
    for name, copy in copies.items():
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(find_shipped(name), copy)
    say(f"{len(copies)} files are in {out / 'configs'}")
    return 0


def _first_sentence(path: Path) -> str:
    """The first sentence of the comment at the top of a configuration, which says its purpose."""
    lines = []
    for line in path.read_text(encoding="utf-8").splitlines():
        # Commands stand indented below the sentence.
        if not line.startswith("# ") or line.startswith("#  "):
            break
        lines.append(line[2:])
    sentence, stop, _ = " ".join(lines).partition(". ")
    return sentence + stop.strip()
