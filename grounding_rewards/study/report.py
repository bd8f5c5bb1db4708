"""The report of a study: tables, text, plots and a page, all from the files that its runs left."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grounding_rewards.common.whole_files import whole_folder, write_whole
from grounding_rewards.metrics.estimates import NOTHING, estimate_as_json, finite_or_none, format_value
from grounding_rewards.report.study_page import render_study_page
from grounding_rewards.report.tables import markdown_table, plain_table
from grounding_rewards.study.audited import audit_arms
from grounding_rewards.study.findings import Findings, find
from grounding_rewards.study.page import plots, study_page
from grounding_rewards.study.results import Study, read_study
from grounding_rewards.study.rulers import RULERS
from grounding_rewards.study.statistics import RESAMPLES
from grounding_rewards.study.tables import (
    ARMS_HEADER,
    arm_rows,
    arms_note,
    arms_title,
    matrix_header,
    matrix_note,
    matrix_rows,
    signal_header,
    signal_note,
    signal_rows,
)
from grounding_rewards.study.words import detectable, summary

if TYPE_CHECKING:
    from PIL.Image import Image
    from rich.console import Console

#: Files of a report.
PAGE, TEXT, LATEX, NUMBERS, PLOTS = "study.html", "study.md", "study.tex", "findings.json", "plots"
# Images of the declared set that are drawn again for the page.
_REDRAWN = 24


def write_report(
    folder: str | Path,
    out: str | Path,
    *,
    resamples: int = RESAMPLES,
    seed: int = 0,
    on_progress: Callable[[str], None] = lambda what: None,
) -> Findings:
    """Measure all models of a study and write its report.

    Args:
        folder: of the study.
        out: where to write `study.html`, `study.md`, `study.tex`, `findings.json` and `plots/`.
        resamples: draws of patients.
        seed: of all draws.
        on_progress: called with the name of each step before it is taken.

    Returns:
        What was found.

    Raises:
        ValueError: the folder holds no study that can be reported; nothing is written then.
        OSError: a file cannot be written.
    """
    found = find(read_study(folder), resamples=resamples, seed=seed, on_progress=on_progress)
    on_progress("auditing rewards")
    found = replace(found, audited=audit_arms(found.study))
    on_progress("drawing")
    drawn = plots(found)
    page = render_study_page(study_page(found, drawn, drawn_images(found.study)))
    with whole_folder(Path(out)) as unfinished:
        write_whole(unfinished / PAGE, page)
        (unfinished / PLOTS).mkdir()
        for one in drawn.values():
            for file_format in ("png", "pdf"):
                one.save(unfinished / PLOTS / f"{one.name}.{file_format}", file_format)
        write_whole(unfinished / TEXT, render_markdown(found))
        write_whole(unfinished / LATEX, render_latex(found))
        write_whole(unfinished / NUMBERS, json.dumps(as_json(found), indent=1, allow_nan=False) + "\n")
    return found


def drawn_images(study: Study) -> dict[str, Image]:
    """The images of the declared set by id, where they are drawn ones that can be drawn again; empty otherwise."""
    from grounding_rewards.data.load import SYNTHETIC, load_split

    on = study.plan.get("sets", {}).get(study.declared.on, {})
    if str(on.get("dataset")).partition(":")[0] != SYNTHETIC or on.get("changes"):
        return {}
    rows = study.sets[study.declared.on]
    images = load_split(on["dataset"], on["split"], images=min(_REDRAWN, len(rows)))
    return {str(image["id"]): image["image"] for image in images}


def print_report(found: Findings, console: Console) -> None:
    """Print the table of arms, the matrix and the summary."""
    from rich.text import Text

    for title, header, rows in (
        (arms_title(found), ARMS_HEADER, arm_rows(found)),
        (f"Means by every ruler, {found.on}", matrix_header(), matrix_rows(found)),
    ):
        table = plain_table(*header, title=title, unbroken=(0,))
        for row in rows:
            table.add_row(*map(Text, row))
        console.print(table)
    for sentence in summary(found):
        console.print(Text(sentence))


def render_markdown(found: Findings, *, level: int = 2) -> str:
    """Summary, table of arms, matrix and cost as Markdown.

    Args:
        found: of :func:`grounding_rewards.study.findings.find`.
        level: of its headings.
    """
    mark = "#" * level
    sentences = summary(found)
    parts = [
        *sentences[:1],
        "\n".join(f"- {sentence}" for sentence in sentences[1:]),
        f"{mark} {arms_title(found)}",
        arms_note(found),
        markdown_table(ARMS_HEADER, arm_rows(found)),
        detectable(found),
        f"{mark} By every ruler",
        matrix_note(found),
    ]
    for on in found.study.sets:
        parts += [f"On {on}:", markdown_table(matrix_header(), matrix_rows(found, on))]
    parts += [f"{mark} Signal, audit and cost", signal_note(), markdown_table(signal_header(), signal_rows(found))]
    return "\n\n".join(parts) + "\n"


def render_latex(found: Findings) -> str:
    """The table of arms for a paper; it needs booktabs."""
    lines = [
        "% \\usepackage{booktabs}",
        "\\begin{tabular}{lrrrr}",
        "\\toprule",
        f"arm & {_tex(RULERS[found.primary].heading)} & vs.\\ {_tex(found.study.declared.reference)}"
        " & $p$ (Holm) & vs.\\ start \\\\",
    ]
    for start in found.starts:
        lines.append("\\midrule")
        at = found.starts[start][found.on][found.primary]
        lines.append(f"{_tex(found.start_name(start))} & {_tex_interval(at)} & & & \\\\")
        for arm in found.of_start(start):
            against, change = found.primary_difference(arm), found.primary_difference(arm, start=True)
            name = _tex(arm.key.arm) + ("$^\\circ$" if arm.is_control else "")
            cells = [
                name,
                _tex_interval(found.primary_of(arm)),
                _tex_interval(against.estimate, signed=True) if against else "reference",
                _tex_p(arm.holm_reference) if against else "",
                _tex_interval(change.estimate, signed=True) if change else "",
            ]
            lines.append(" & ".join(cells) + " \\\\")
    return "\n".join([*lines, "\\bottomrule", "\\end{tabular}"]) + "\n"


def as_json(found: Findings) -> dict[str, Any]:
    """All numbers as plain values; null where there is nothing to measure."""

    def compared(table: Any) -> Any:
        return (
            None
            if table is None
            else {
                on: {
                    key: {**estimate_as_json(one.estimate), "p": finite_or_none(one.p)} for key, one in metrics.items()
                }
                for on, metrics in table.items()
            }
        )

    def plain(table: Any) -> Any:
        return {on: {key: estimate_as_json(one) for key, one in metrics.items()} for on, metrics in table.items()}

    return {
        "study": found.study.name,
        "declared": {"metric": found.primary, "set": found.on, "reference": found.study.declared.reference},
        "summary": summary(found),
        "seed_variance": finite_or_none(found.seed_variance),
        "patient_variance": finite_or_none(found.patient_variance),
        "detectable": {str(n): finite_or_none(found.detectable(n)) for n in (found.seeds, 5, 10, 20)},
        "family": found.family,
        "patients": dict(found.patients),
        "resamples": found.resamples,
        "starts": {start: plain(tables) for start, tables in found.starts.items()},
        "arms": [
            {
                "start": arm.key.start,
                "arm": arm.key.arm,
                "control": arm.is_control,
                "reward": arm.reward,
                "seeds": list(arm.seeds),
                "runs": list(map(finite_or_none, arm.runs)),
                "metrics": plain(arm.metrics),
                "against_reference": compared(arm.against_reference),
                "against_start": compared(arm.against_start),
                "holm_reference": finite_or_none(arm.holm_reference),
                "holm_start": finite_or_none(arm.holm_start),
                "interquartile_mean": estimate_as_json(arm.interquartile),
                "probability_of_improvement": arm.improvement and estimate_as_json(arm.improvement),
                "seeds_to_settle": arm.settled_by,
                "audit": [one._asdict() for one in found.audited.get(arm.key, ())],
                "groups_without_spread": finite_or_none(arm.signal.whole),
                "compute": dict(arm.compute),
            }
            for arm in found.arms
        ],
    }


def _tex(text: str) -> str:
    return "".join({"_": "\\_", "%": "\\%", "&": "\\&", "#": "\\#", "$": "\\$"}.get(one, one) for one in text)


def _tex_interval(estimate: Sequence[float], *, signed: bool = False) -> str:
    value, low, high = (format_value(end, signed=signed) for end in estimate)
    return NOTHING if math.isnan(estimate[0]) else f"${value}$ [${low}$, ${high}$]"


def _tex_p(p: float) -> str:
    return "--" if math.isnan(p) else "$<0.001$" if p < 0.001 else f"${p:.3f}$"
