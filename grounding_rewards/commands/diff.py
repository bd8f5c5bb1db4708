"""Compare two runs of `grounding-rewards evaluate` on the films that both have: is B better than A, by how much, and on
which labels and sizes of findings. Films are matched by id; runs with different reference boxes are refused.

Every figure of both runs has a 95 % interval, and so has their difference, B - A, over patients (or over films, where
no patient is known), the same ones left out of both. Beside it a permutation test says how often a difference
comes by chance that is as large, and Holm's p takes into account how many tests the table has. The verdict is about one
figure: choose it before you look.

The baselines that `evaluate` measured with B stand beside both runs. The page that --html writes shows films and what
the models wrote about them: guard it like the films. Beside it lie films.png and, where there is a log of the training,
curves.png.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grounding_rewards.commands.console import add_allow_outside, output_console, say, write_json
from grounding_rewards.data.run_log import LOG
from grounding_rewards.metrics.answered_film import AnsweredFilm, read_answered
from grounding_rewards.metrics.comparison import DRAWS, MAIN_FIGURE, RunDifference, compare_runs
from grounding_rewards.metrics.estimates import Figures
from grounding_rewards.metrics.evaluation import StoredEvaluation, read_evaluation
from grounding_rewards.metrics.sizes import SIZES
from grounding_rewards.report.comparison_tables import (
    Comparison,
    facts_that_differ,
    print_difference,
    print_figures,
    render_markdown,
)
from grounding_rewards.rewards.label_matching import LABEL_MATCHING
from grounding_rewards.whole_files import whole_folder, write_whole

if TYPE_CHECKING:
    from PIL.Image import Image

EXAMPLES = """\
examples:
  grounding-rewards diff runs/before runs/after
  grounding-rewards diff runs/R3 runs/R4 --figure mean_iou --json diff.json --markdown diff.md
  grounding-rewards diff runs/before runs/after --html runs/after/diff.html --figures reward_R4 mean_iou f1_50
  grounding-rewards diff one/films.jsonl other/films.jsonl --seed 1 --resamples 20000
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments to its parser."""
    parser.add_argument("a", type=Path, metavar="A", help="folder of an evaluation, or its films.jsonl")
    parser.add_argument("b", type=Path, metavar="B", help="the run that is compared with it")
    parser.add_argument(
        "--figure",
        default=MAIN_FIGURE,
        metavar="KEY",
        help="what the verdict is about, such as mean_iou or reward_R4; a wrong key lists the right ones; "
        "default: %(default)s",
    )
    parser.add_argument(
        "--figures",
        nargs="+",
        default=(),
        metavar="KEY",
        help="show only these, as columns with intervals, runs and baselines as lines; default: all, as lines",
    )
    parser.add_argument(
        "--label-matching",
        choices=LABEL_MATCHING,
        help="whether a box is right only under the finding's label; default: as in both evaluations",
    )
    parser.add_argument(
        "--sizes",
        choices=SIZES,
        default="film",
        help="sizes of reference boxes: parts of the film's area, or COCO's in pixels; default: %(default)s",
    )
    parser.add_argument(
        "--resamples",
        type=int,
        default=DRAWS,
        metavar="N",
        help="draws of the permutation test; default: %(default)s",
    )
    parser.add_argument(
        "--seed",
        type=int,
        default=0,
        metavar="N",
        help="of them, and of what intervals leave out; default: %(default)s",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write everything as JSON")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the verdict and the tables as Markdown")
    parser.add_argument("--html", type=Path, metavar="FILE", help="write a page with figures, curves and films")
    add_allow_outside(parser)
    parser.add_argument(
        "--reward",
        metavar="NAME",
        help="reward by whose change the page chooses films; default: the one that B was evaluated with, else R4",
    )
    parser.add_argument(
        "--log",
        type=Path,
        metavar="FILE",
        help="log of the training, whose curves the page shows; default: log.jsonl beside the checkpoint of B",
    )


def run(options: argparse.Namespace) -> int:
    """Compare two runs and report.

    Returns:
        0, whatever the verdict is.

    Raises:
        ValueError: a run cannot be read, or the two cannot be compared.
        OSError: a file cannot be written.
    """
    a, b = read_answered(options.a), read_answered(options.b)
    evaluation = read_evaluation(options.b)
    evaluations = read_evaluation(options.a), evaluation
    found = compare_runs(
        a,
        b,
        label_matching=options.label_matching or _label_matching(evaluations),
        sizes=options.sizes,
        main=options.figure,
        resamples=options.resamples,
        seed=options.seed,
    )
    comparison = Comparison(
        found=found,
        paths=(options.a, options.b),
        figures=_chosen(options.figures, found),
        settings=facts_that_differ(*(one.facts for one in evaluations)),
        baselines=_baselines(evaluation, found),
    )
    if options.markdown is not None:
        write_whole(options.markdown, render_markdown(comparison))
    if options.html is not None:
        _write_page(options, comparison, a, b, evaluation)
    if options.json is not None:
        write_json(options.json, comparison.as_json())
    console = output_console(170)
    (print_figures if options.figures else print_difference)(comparison, console)
    if options.html is not None:
        console.print(f"Page: {options.html.resolve().as_uri()}", soft_wrap=True, markup=False)
    return 0


def _label_matching(evaluations: Sequence[StoredEvaluation]) -> str:
    """How labels were compared in the evaluations of both runs; a run that does not say is taken to be as the other."""
    rules = dict.fromkeys(one.label_matching for one in evaluations if one.label_matching is not None)
    if len(rules) > 1:
        raise ValueError(
            f"Expected runs that were evaluated by one --label-matching, got {' and '.join(rules)}. Their figures "
            "say different things: give --label-matching, by which both are measured here, or evaluate one again."
        )
    return next(iter(rules), "ignore")


def _chosen(keys: Sequence[str], found: RunDifference) -> Sequence[str]:
    """The figures that are shown; all of them where none was chosen."""
    for key in keys:
        if key not in found.figures:
            raise ValueError(
                f"Expected figures of both runs for --figures, got {key!r}. They have: {', '.join(found.figures)}."
            )
    return list(dict.fromkeys(keys)) or list(found.figures)


def _baselines(evaluation: StoredEvaluation, found: RunDifference) -> Mapping[str, Figures]:
    """The baselines of B, if they were measured on the films that both runs have, by the same `--label-matching`."""
    if found.only_b or evaluation.label_matching != found.label_matching:
        return {}
    return dict(list(evaluation.systems.items())[1:])


def _write_page(
    options: argparse.Namespace,
    comparison: Comparison,
    a: Sequence[AnsweredFilm],
    b: Sequence[AnsweredFilm],
    evaluation: StoredEvaluation,
) -> None:
    from grounding_rewards.data.run_log import read_entries
    from grounding_rewards.report.diff_page import DiffPage, FilmPair, render_diff_page
    from grounding_rewards.report.picture import draw_films
    from grounding_rewards.report.training_curves import training_plot

    in_b = {film.id: film for film in b}
    pairs = [FilmPair(film, in_b[film.id]) for film in a if film.id in in_b]
    reward = _reward(options.reward or evaluation.reward, pairs)
    load_image = _image_loader(b, evaluation.facts, options.b, options.allow_outside)
    path = options.log or _training_log(evaluation.facts)
    training = None if path is None else training_plot(read_entries(path))
    page = DiffPage(
        comparison=comparison,
        subtitle=_subtitle(comparison.found, evaluation.facts),
        pairs=pairs,
        reward=reward,
        load_image=load_image,
        label_matching=comparison.found.label_matching,
        training=training,
    )
    with whole_folder(options.html.parent) as unfinished:
        write_whole(unfinished / options.html.name, render_diff_page(page))
        write_whole(unfinished / "films.png", draw_films(pairs, comparison.names, reward, load_image))
        if training is not None:
            training.save(unfinished / "curves.png", "png", dpi=130)


def _subtitle(found: RunDifference, facts: Mapping[str, Any]) -> str:
    split = f" ({facts['split']})" if facts.get("split") else ""
    return f"{found.films} films" + (f" of {Path(str(facts['dataset'])).name}{split}" if "dataset" in facts else "")


def _reward(name: str, pairs: Sequence[Any]) -> str:
    names = [name for name in pairs[0].a.rewards if all(name in film.rewards for pair in pairs for film in pair)]
    if name not in names:
        raise ValueError(
            f"Expected a reward that all films of both runs have for --reward, got {name!r}. "
            f"They have: {', '.join(names) or 'none'}."
        )
    return name


def _training_log(facts: Mapping[str, Any]) -> Path | None:
    """The log of the training that lies beside the evaluated checkpoint, if any."""
    path = Path(str(facts.get("model", ""))).parent / LOG
    return path if "model" in facts and path.is_file() else None


def _image_loader(
    films: Sequence[AnsweredFilm], facts: Mapping[str, Any], run: Path, allow_outside: bool
) -> Callable[[AnsweredFilm], Image | None]:
    """A function that opens the image of a film: its row in the dataset that was evaluated on, else its file.

    A run from elsewhere may name any file of this machine: only those in its folder or its dataset's are opened.
    """
    from grounding_rewards.data.film_paths import is_below
    from grounding_rewards.data.images import open_film
    from grounding_rewards.data.load import SYNTHETIC, load_dataset_image, load_split

    files = {film.id: film.image for film in films if film.image is not None and Path(film.image).is_file()}
    # The films of a log have no dataset: its place says so in words.
    named = Path(str(facts.get("dataset", "")))
    folders = [run if run.is_dir() else run.parent, *([named] if facts.get("dataset") and named.is_dir() else [])]
    outside = [name for name, file in files.items() if not (allow_outside or is_below(folders, file))]
    if outside:
        say(
            f"grounding-rewards: {len(outside)} films are drawn without their images, which lie outside "
            f"{' and '.join(map(repr, map(str, folders)))}. Give --allow-outside if these films are meant.",
            error=True,
        )
        files = {name: file for name, file in files.items() if name not in set(outside)}
    dataset: Any = None
    places: dict[str, int] = {}
    if len(files) < len(films) and facts.get("dataset") and facts.get("split"):
        try:
            name = str(facts["dataset"])
            # The films of the run need not be the first ones; drawn films have no end.
            count = facts.get("films") if name.partition(":")[0] == SYNTHETIC else None
            dataset = load_split(name, str(facts["split"]), films=count, allow_outside=allow_outside, bad_rows="drop")
            places = {name: k for k, name in enumerate(map(str, dataset["id"]))}
        except (ValueError, KeyError, OSError, ImportError) as error:
            say(f"grounding-rewards: films are drawn without their images: {error}", error=True)

    def load(film: AnsweredFilm) -> Image | None:
        if film.id in places:
            return load_dataset_image(dataset, places[film.id])
        return open_film(files[film.id]) if film.id in files else None

    return load
