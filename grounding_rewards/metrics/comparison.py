"""Is run B better than run A on the same images: by how much, how certain, and on which labels.

**Images** are matched by id; those that only one run has are counted and left out. Both runs must have the same
reference boxes, labels and ignored regions. Units are patients, or images if no patient is known; an image without a
patient among images with one is a patient of its own.

**Intervals** of each run are those of an evaluation. The difference of a metric is B - A, each over all shared images;
its 95 % interval is a paired jackknife: a unit is left out of both runs together, so that what makes an image hard for
both cancels (:mod:`grounding_rewards.metrics.intervals`). A share that is the same on all of n units has the exact
interval of 0 of n, to both sides. Image dependence compares images with each other and has sums of its own
(:mod:`grounding_rewards.metrics.image_dependence`).

**The test**, :func:`swap_p_values`, is a permutation test over the same units. If neither run is better, which answer
came from which run is the toss of a coin. So the runs change places on random units, and p is the share of draws whose
difference is at least as large, counting the runs as they are as one draw. The difference is measured in the standard
error of its own draw: p is then right, except for very few patients, also where the runs differ in what they do, one
writing many boxes and the other few, and only the metric is the same. Average precision and sensitivities are metrics
of all images together; their test is that of a mean of each unit's jackknife value, over at most
:data:`grounding_rewards.metrics.intervals.MOST_PARTS` parts of the units.

**Families.** Several tests find something by chance more often than one. Holm's p is for a family of tests: the metrics
that are shown, a dozen or those that were chosen; all other metrics; every metric of every label. The intervals
are not adjusted.

**Verdict.** B is called better or worse by one rule, :func:`direction`: the interval excludes 0 and Holm's p is below
0.05. Otherwise no change is shown, and there may be one, as large as the interval. The verdict reports mean IoU, F1 and
the chosen metric in any case, then which other metrics are better, and which metrics and labels are worse. Its words
are written here, the tables and the page around it in ``report/comparison.py``.

**Labels** have the metrics of their reference boxes alone: a false box belongs to no finding. Labels that differ in
case and white space are one; under `synonyms` so are two words for one finding. The numbers of units on which a metric
is better, worse and the same leave out units on which either run has nothing to measure, such as the F1 of a normal
image without a box; the test takes them in.

Sources: Efron and Tibshirani, An Introduction to the Bootstrap, 1993, §11; Holm, A Simple Sequentially Rejective
Multiple Test Procedure, Scandinavian Journal of Statistics 1979; Chung and Romano, Exact and Asymptotically Robust
Permutation Tests, Annals of Statistics 2013; Phipson and Smyth, Permutation P-values Should Never Be Zero, Statistical
Applications in Genetics and Molecular Biology 2010.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from grounding_rewards.common.formatting import NO_VALUE, as_json, capitalised, format_p, format_value, html_table
from grounding_rewards.common.numeric import Array, ratio_or_nan
from grounding_rewards.metrics import intervals
from grounding_rewards.metrics.average_precision import RankingMetrics
from grounding_rewards.metrics.detection import BoxGroups, MatchedImages, label_groups, reference_sums
from grounding_rewards.metrics.evaluation import CORE_METRICS
from grounding_rewards.metrics.image_dependence import IMAGE_DEPENDENCE, dependence_sums
from grounding_rewards.metrics.intervals import Estimate, Metric
from grounding_rewards.metrics.prediction import UNNAMED, Prediction, patients_of

# Cells of an array of draws by units.
_CELLS = 1 << 21
# Statistics that would be equal without rounding differ by less than this part of them.
_SWAP_ROUNDING = 1e-9


def swap_p_values(a: Sequence[Array], b: Sequence[Array], *, resamples: int, seed: int = 0) -> list[float]:
    """The two-sided p of the difference of each metric between two runs, by swapping the runs on units at random.

    Args:
        a: by metric ``(units, 2)`` numerators and denominators of run A. Units are independent of each other: patients,
            or images.
        b: of run B, on the same units.
        resamples: number of draws. Where the units on which a metric differs can change places in no more ways than
            this, all of them are taken, and its p is exact.
        seed: of the draws.

    Returns:
        For each metric p in (0, 1]; NaN where it cannot be measured in both runs, or is the same on every unit.

    Example:
        >>> a, b = ([np.column_stack([np.full(6, value), np.ones(6)])] for value in (0.5, 0.75))
        >>> swap_p_values(a, b, resamples=100) == [2 / 2**6]
        True
    """
    metrics = [_MetricPair(sums_a, sums_b) for sums_a, sums_b in zip(a, b, strict=True)]
    p_values = [math.nan] * len(metrics)
    # By the index of each metric whose p is from random draws: how many of them differ as much as the runs do. The runs
    # as they are count as one.
    reaching_draws: dict[int, int] = {}
    for k, metric in enumerate(metrics):
        n = len(metric.differing_units)
        # Without a difference, or a value in both runs, there is no test: p stays NaN.
        if not n or math.isnan(metric.observed_statistic):
            continue
        if 2**n <= resamples:
            # All ways to change places, as the binary digits of the numbers below 2^n, 1 for a unit that is swapped.
            all_swaps = ((np.arange(2**n)[:, None] >> np.arange(n)) & 1).astype(np.float64)
            p_values[k] = metric.count_reaching(all_swaps @ metric.swap_changes[metric.differing_units]) / 2**n
        else:
            reaching_draws[k] = 1
    if reaching_draws:
        # One product for all metrics: to pick each one's units would take longer than to add their zeros.
        swap_changes = np.hstack([metrics[k].swap_changes for k in reaching_draws])
        rng, units = np.random.default_rng(seed), len(a[0])
        draws_at_once = max(1, _CELLS // units)
        for start in range(0, resamples, draws_at_once):
            swaps = rng.integers(0, 2, (min(draws_at_once, resamples - start), units), dtype=np.int8)
            sum_changes = np.split(swaps.astype(np.float64) @ swap_changes, len(reaching_draws), axis=1)
            for k, metric_changes in zip(reaching_draws, sum_changes, strict=True):
                reaching_draws[k] += metrics[k].count_reaching(metric_changes)
    for k, count in reaching_draws.items():
        p_values[k] = count / (resamples + 1)
    return p_values


class _MetricPair:
    """One metric of both runs, as sums over units, which change where the runs change places on a unit.

    `differing_units`: indices of the units on which the runs differ.
    `first_sums`: ``(6,)`` the summed :func:`_sums_and_products` of the run that comes first, which is A without a swap.
    `swap_changes`: ``(units, 6)`` by how much a swap on each unit changes `first_sums`.
    `both_sums`: ``(6,)`` the sums of A and B together, so that those of the second run are these less `first_sums`.
    `cross_sums`: Σ n_A n_B and Σ d_A d_B, which no swap changes.
    `observed_statistic`: the statistic without a swap.
    """

    def __init__(self, a: Array, b: Array) -> None:
        """Take numerators and denominators, ``(units, 2)``, of run A and of run B."""
        sums_a, sums_b = _sums_and_products(a, b), _sums_and_products(b, a)
        # On other units a swap changes nothing.
        self.differing_units = np.flatnonzero((a != b).any(axis=1))
        self.swap_changes = sums_b - sums_a
        self.first_sums, self.both_sums = sums_a.sum(axis=0), (sums_a + sums_b).sum(axis=0)
        self.cross_sums = (a * b).sum(axis=0)
        # One draw, in which nothing is swapped.
        self.observed_statistic = float(self._statistic(self.first_sums[None])[0])

    def count_reaching(self, sum_changes: Array) -> int:
        """Count the draws whose difference is at least as large as the observed one.

        Args:
            sum_changes: ``(draws, 6)`` by how much the swaps of each draw change the sums of the first run.
        """
        statistics = self._statistic(self.first_sums + sum_changes)
        # A draw on which there is nothing to measure, NaN, is counted: it is no sign of more than chance.
        return int((~(statistics < self.observed_statistic * (1 - _SWAP_ROUNDING))).sum())

    def _statistic(self, first_sums: Array) -> Array:
        """How far the runs are apart after swaps, in standard errors of the difference of each draw, ``(draws,)``.

        `first_sums` are those of the run that comes first, 1, ``(draws, 6)``. With r = N / D, the sums of n and of d
        over units, the delta method for a ratio gives

            var(r_1) = Σ (n_1 - r_1 d_1)² / D_1², likewise var(r_2)
            cov(r_1, r_2) = Σ (n_1 - r_1 d_1) (n_2 - r_2 d_2) / (D_1 D_2)
            var(r_2 - r_1) = var(r_1) + var(r_2) - 2 cov(r_1, r_2)
        """
        n_1, d_1, nn_1, nd_1, dd_1, n_1_d_2 = first_sums.T
        n_2, d_2, nn_2, nd_2, dd_2, n_2_d_1 = (self.both_sums - first_sums).T
        n_1_n_2, d_1_d_2 = self.cross_sums
        r_1, r_2 = ratio_or_nan(n_1, d_1), ratio_or_nan(n_2, d_2)
        # The squared sums multiplied out: n², then what has n and d, and what has both runs. The first terms are apart,
        # as the others may cancel them but for rounding.
        squares = ratio_or_nan(nn_1 + r_1**2 * dd_1, d_1**2) + ratio_or_nan(nn_2 + r_2**2 * dd_2, d_2**2)
        mixed = ratio_or_nan(r_1 * nd_1, d_1**2) + ratio_or_nan(r_2 * nd_2, d_2**2)
        covariance = ratio_or_nan(n_1_n_2 - r_1 * n_2_d_1 - r_2 * n_1_d_2 + r_1 * r_2 * d_1_d_2, d_1 * d_2)
        variance = squares - 2 * (mixed + covariance)
        difference = np.abs(r_2 - r_1)
        # What rounding alone makes is no difference.
        difference[difference < _SWAP_ROUNDING] = 0.0
        # Where all units differ alike, the variance is 0 but for rounding, and the statistic infinite.
        variance = np.where(variance < _SWAP_ROUNDING * squares, 0.0, variance)
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(difference == 0, 0.0, difference / np.sqrt(variance))


def _sums_and_products(sums: Array, partner_sums: Array) -> Array:
    """Columns n, d, n², n·d, d², and n times the other run's d, ``(units, 6)``, of numerators n and denominators d."""
    n, d = sums.T
    return np.stack([n, d, n * n, n * d, d * d, n * partner_sums[:, 1]], axis=1)


#: What the verdict is about by default: how well boxes fit.
MAIN_METRIC = "mean_iou"
# The metrics of every verdict: mean IoU does not see false boxes, and F1 does not see how well a right box fits.
_LEADING_METRICS = ("mean_iou", "f1_50")

#: Draws of the permutation test.
DRAWS = 5_000

#: B is called better or worse where Holm's p is below this.
LEVEL = 0.05
# An end of an interval that reads 0.000 in tables is 0: no verdict contradicts the numbers beside it.
_DECIMALS = 3
# The metrics of the reference boxes of one label.
_LABEL_METRICS = ("mean_iou", "recall_50")
# Metrics of the same boxes that are added up in another order differ by less than this.
_ROUNDING = 1e-12


def direction(difference: Estimate, holm: float, *, lower_is_better: bool | None = False) -> int:
    """The sign of a change that is shown: the rule of every verdict, table, plot and page.

    Args:
        difference: B - A with its 95 % interval.
        holm: p, adjusted for the metrics that are shown with it; NaN without a test.
        lower_is_better: whether a fall is for the better; None of a metric that is best at 0, from both sides, whose
            change is neither better nor worse.

    Returns:
        1 for better, where the interval, in three decimals, has only better values than 0 and Holm's p is below 0.05;
        -1 for worse, where it has only worse ones; else 0.

    Example:
        >>> direction(Estimate(0.17, 0.15, 0.19), 0.001), direction(Estimate(0.17, 0.15, 0.19), 0.06)
        (1, 0)
        >>> direction(Estimate(0.17, 0.15, 0.19), 0.001, lower_is_better=True)
        -1
    """
    # Also where there is no test: NaN is not below.
    if lower_is_better is None or not holm < LEVEL:
        return 0
    # The whole interval above 0, or the whole of it below.
    sign = (round(difference.low, _DECIMALS) > 0) - (round(difference.high, _DECIMALS) < 0)
    return -sign if lower_is_better else sign


class Units(NamedTuple):
    """On how many units B is better, worse and the same."""

    better: int
    worse: int
    tied: int


class Change(NamedTuple):
    """One metric of both runs.

    metric: what is measured.
    a: its value in run A.
    b: in run B.
    difference: B - A.
    units: on how many images or patients B is better, worse and the same.
    p: of the permutation test; NaN without any difference, and where there is no test.
    holm: p, adjusted for all tests of its family; NaN as p is.
    """

    metric: Metric
    a: Estimate
    b: Estimate
    difference: Estimate
    units: Units
    p: float
    holm: float

    @property
    def direction(self) -> int:
        """1 where B is better, -1 where it is worse, 0 where no change is shown: see :func:`direction`."""
        return direction(self.difference, self.holm, lower_is_better=self.metric.lower_is_better)

    def to_dict(self) -> dict[str, Any]:
        """The change as plain values; None where there is nothing to measure."""
        values = self._asdict()
        metric = values.pop("metric")
        return as_json({"heading": metric.heading, "lower_is_better": bool(metric.lower_is_better), **values})


class GroupChanges(NamedTuple):
    """The reference boxes of one label: their number and, by key, the changes of the metrics about them."""

    name: str
    boxes: int
    changes: Mapping[str, Change]


@dataclass(frozen=True)
class RunDifference:
    """Differences between two runs on the images that both have.

    Attributes:
        images: that both runs have.
        only_a: images that run A alone has.
        only_b: images that run B alone has.
        units: `patients` or `images`: what is resampled, and what changes places in the test.
        n: number of units.
        main: key of the metric that the verdict is about.
        core: keys of the metrics that are shown, for which Holm's p is adjusted together.
        metrics: by key, all images together.
        labels: by label, the one with most reference boxes first.
        resamples: draws of the test.
        seed: of them, and of what intervals leave out.
        label_matching: how labels were compared.
    """

    images: int
    only_a: int
    only_b: int
    units: str
    n: int
    main: str
    core: tuple[str, ...]
    metrics: Mapping[str, Change]
    labels: tuple[GroupChanges, ...]
    resamples: int
    seed: int
    label_matching: str = "ignore"

    def __repr__(self) -> str:
        return self.verdict

    def _repr_html_(self) -> str:
        rows = []
        for key in self.core:
            change = self.metrics[key]
            values = [format_value(change.a.value), format_value(change.b.value)]
            rows.append([change.metric.heading, *values, intervals.format_estimate(change.difference, signed=True)])
        return html_table(["metric", "before", "after", "change"], rows, self.verdict)

    @property
    def verdict(self) -> str:
        """A sentence for each leading metric, with its change or that none is shown; then what else is better or worse.

        The main metric, mean IoU and F1 lead. Labels are named where they are worse.
        """
        leading = [key for key in dict.fromkeys((self.main, *_LEADING_METRICS)) if key in self.core]
        sentences = [_sentence(key, self.metrics[key], self.units) for key in leading]
        core_changes = [self.metrics[key] for key in self.core if key not in leading]
        better = [_format_change(change) for change in core_changes if change.direction > 0]
        worse = [_format_change(change) for change in core_changes if change.direction < 0]
        for group in self.labels:
            label_changes = [change for change in group.changes.values() if change.direction < 0]
            worse += [_format_change(change, f" on {group.name}") for change in label_changes]
        if better:
            sentences.append(f"Better: {'; '.join(better)}.")
        if worse:
            sentences.append(f"Worse: {'; '.join(worse)}.")
        else:
            # A leading metric that is worse was named above.
            other = "other " if any(self.metrics[key].direction < 0 for key in leading) else ""
            sentences.append(f"No {other}metric or label is shown to be worse.")
        return " ".join(sentences)

    def to_dict(self) -> dict[str, Any]:
        """The comparison as plain values; None where there is nothing to measure."""
        return {
            "verdict": self.verdict,
            "images": {"both": self.images, "only_a": self.only_a, "only_b": self.only_b},
            "units": {"name": self.units, "count": self.n},
            "main": self.main,
            "core": list(self.core),
            "metrics": _to_dicts(self.metrics),
            "labels": {group.name: {"boxes": group.boxes, **_to_dicts(group.changes)} for group in self.labels},
            "resamples": self.resamples,
            "seed": self.seed,
            "label_matching": self.label_matching,
        }

    def to_dataframe(self) -> Any:
        """A ``pandas.DataFrame`` with a row for each metric: both runs, their difference with its interval, and p."""
        import pandas

        columns = ["metric", "a", "b", *Estimate._fields, "p", "holm"]
        rows = [
            (key, change.a.value, change.b.value, *change.difference, change.p, change.holm)
            for key, change in self.metrics.items()
        ]
        return pandas.DataFrame(rows, columns=columns)


def check_metric(option: str, key: str, metrics: Mapping[str, Any]) -> None:
    """Refuse the key of a metric that is not among those of both runs."""
    if key not in metrics:
        raise ValueError(f"Expected a metric of both runs for {option}, got {key!r}. They have: {', '.join(metrics)}.")


def _to_dicts(changes: Mapping[str, Change]) -> dict[str, Any]:
    """The changes as plain values, by key."""
    return {key: change.to_dict() for key, change in changes.items()}


def compare_runs(
    a: Sequence[Prediction],
    b: Sequence[Prediction],
    *,
    label_matching: str = "ignore",
    main: str = MAIN_METRIC,
    core: Sequence[str] = CORE_METRICS,
    resamples: int = DRAWS,
    seed: int = 0,
) -> RunDifference:
    """Compare two runs on the images that both have; the top of this module has the definitions.

    Args:
        a: the predictions of run A.
        b: the predictions of run B.
        label_matching: ``"ignore"``, ``"exact"`` or ``"synonyms"``: whether a box is right only under the finding's
            label.
        main: key of the metric that the verdict is about, `mean_iou` or `reward_R4` for instance.
        core: keys of the metrics that are shown beside `main`; Holm's p of each is adjusted for all that are shown.
            Keys that a run lacks are left out.
        resamples: draws of the test.
        seed: of them, and of what intervals leave out.

    Raises:
        ValueError: a run has two images of one id, no image is in both, the references of an image differ, there is no
            metric `main`, less than one resampling, or a negative seed.

    Example:
        >>> truth = {"width": 99, "height": 99, "gt": [[0, 0, 9, 9]], "gt_labels": ["mass"]}
        >>> a = [Prediction(str(i), **truth, pred=[[0, 0, 9, 3]]) for i in range(8)]
        >>> b = [Prediction(str(i), **truth, pred=[[0, 0, 9, 6]]) for i in range(8)]
        >>> found = compare_runs(a, b)
        >>> f1 = found.metrics["f1_50"]
        >>> f1.difference, f1.units, f1.p
        (Estimate(value=1.0, low=1.0, high=1.0), Units(better=8, worse=0, tied=0), 0.0078125)
    """
    if resamples < 1:
        raise ValueError(f"Expected at least 1 for `resamples`, got {resamples}. {DRAWS} is usual.")
    if seed < 0:
        raise ValueError(f"Expected a whole number from 0 up for `seed`, got {seed}. 0 is usual.")
    images_a, images_b = _by_id(a, "A"), _by_id(b, "B")
    pairs = [(image, images_b[name]) for name, image in images_a.items() if name in images_b]
    _check_references(pairs, len(images_a), len(images_b))
    runs = [MatchedImages([pair[run] for pair in pairs], label_matching) for run in (0, 1)]
    shared_metrics = {key: metric for key, metric in runs[0].metrics.items() if key in runs[1].metrics}
    metrics = shared_metrics | IMAGE_DEPENDENCE
    check_metric("`main`", main, metrics)
    # One run may know a patient that the other does not.
    patients = patients_of([image_b if image_a.patient is None else image_a for image_a, image_b in pairs])
    # Numbers from 0: the patient of each image, or the image where no patient is known.
    units: Any = intervals.group_numbers(patients, len(pairs))
    draws = {"resamples": resamples, "seed": seed}
    dependences = [dependence_sums(run.images, label_matching=label_matching) for run in runs]
    # Image dependence is tested by the sums of answers, which change places between the runs.
    sums = [
        run.sums(shared_metrics) | {"image_dependence": dependence.by_answer}
        for run, dependence in zip(runs, dependences, strict=True)
    ]
    changes = _changes(metrics, sums, units, **draws)
    # The intervals of image dependence are right only from the sums of images.
    by_unit = [intervals.sum_by_group(dependence.by_image, units) for dependence in dependences]
    change = changes["image_dependence"]
    estimate_a, estimate_b, difference = _estimates(change.metric, *by_unit)
    changes["image_dependence"] = change._replace(a=estimate_a, b=estimate_b, difference=difference)
    changes |= _ranked_changes(runs[0].images, runs[1].images, label_matching, units, **draws)
    # Two families, for each of which Holm's p is adjusted.
    core_changes = {key: changes[key] for key in dict.fromkeys((*core, main)) if key in changes}
    further_changes = {key: change for key, change in changes.items() if key not in core_changes}
    # Labels are told apart even where they play no part in matching.
    label_rule = "synonyms" if label_matching == "synonyms" else "exact"
    return RunDifference(
        images=len(pairs),
        only_a=len(images_a) - len(pairs),
        only_b=len(images_b) - len(pairs),
        units="images" if patients is None else "patients",
        n=int(units.max()) + 1,
        main=main,
        core=tuple(core_changes),
        metrics={**changes, **_with_holm(core_changes), **_with_holm(further_changes)},
        labels=_label_changes(label_groups(runs[0].images, label_rule), metrics, runs, units, **draws),
        resamples=resamples,
        seed=seed,
        label_matching=label_matching,
    )


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjust the p values of a family of tests, so that one below α comes by chance with probability α at most.

    Sorted, p_(1) <= … <= p_(k): ``adjusted_(i) = max over j <= i of min(1, (k - j + 1) p_(j))``.

    Args:
        p_values: k values in [0, 1]; NaN where a test could not be made, which is no member of the family.

    Returns:
        The adjusted values in the order of `p_values`, NaN where these are.

    Example:
        >>> holm([0.01, 0.04, 0.03])
        [0.03, 0.06, 0.06]

    Source: Holm, A Simple Sequentially Rejective Multiple Test Procedure, Scandinavian Journal of Statistics 1979.
    """
    order = sorted((i for i, p in enumerate(p_values) if not math.isnan(p)), key=lambda i: p_values[i])
    adjusted, largest = [math.nan] * len(p_values), 0.0
    # Ranks are from 0, one below the j of the formula.
    for rank, i in enumerate(order):
        largest = max(largest, min(1.0, (len(order) - rank) * p_values[i]))
        adjusted[i] = largest
    return adjusted


def _changes(
    metrics: Mapping[Any, Metric], runs: Sequence[Mapping[Any, Array]], units: Sequence[Any], **draws: int
) -> dict[Any, Change]:
    """The change of each metric between two runs, by key; Holm's p is NaN, as it is adjusted for a family later.

    Args:
        metrics: by key.
        runs: run A and run B: by the same keys the numerators and denominators, ``(images, 2)``.
        units: the patient of each image, or the image.
        draws: `resamples` and `seed` of the test.
    """
    sums_a = [intervals.sum_by_group(runs[0][key], units) for key in metrics]
    sums_b = [intervals.sum_by_group(runs[1][key], units) for key in metrics]
    p_values = swap_p_values(sums_a, sums_b, **draws)
    changes: dict[Any, Change] = {}
    for (key, metric), a, b, p in zip(metrics.items(), sums_a, sums_b, p_values, strict=True):
        # Of the metric on each unit alone; NaN where a run has nothing to measure there.
        unit_changes = intervals.ratios(b) - intervals.ratios(a)
        up, down = int((unit_changes > _ROUNDING).sum()), int((unit_changes < -_ROUNDING).sum())
        tied = int((~np.isnan(unit_changes)).sum()) - up - down
        better, worse = (down, up) if metric.lower_is_better else (up, down)
        changes[key] = Change(metric, *_estimates(metric, a, b), Units(better, worse, tied), p, math.nan)
    return changes


def _estimates(metric: Metric, a: Array, b: Array) -> tuple[Estimate, Estimate, Estimate]:
    """A metric of run A, of run B and its difference, from numerators and denominators, ``(units, 2)`` of each run."""
    estimate = intervals.ratio_estimate
    return estimate(a, metric), estimate(b, metric), intervals.difference_estimate(a, b, metric)


def _label_changes(
    labels: BoxGroups, metrics: Mapping[str, Metric], runs: Sequence[MatchedImages], units: Sequence[Any], **draws: int
) -> tuple[GroupChanges, ...]:
    """The changes on the reference boxes of each label, p adjusted for all of them; arguments as of :func:`_changes`.

    `labels` says which reference boxes have each label.
    """
    label_metrics = {(name, key): metrics[key] for name in labels for key in _LABEL_METRICS}
    label_sums = [reference_sums(run, labels) for run in runs]
    changes = _with_holm(_changes(label_metrics, label_sums, units, **draws))
    label_changes = []
    for name, members in labels.items():
        by_key = {key: changes[name, key] for key in _LABEL_METRICS}
        label_changes.append(GroupChanges(name or UNNAMED, int(members.sum()), by_key))
    return tuple(label_changes)


def _ranked_changes(
    a: Sequence[Prediction], b: Sequence[Prediction], label_matching: str, units: Sequence[Any], **draws: int
) -> dict[str, Change]:
    """The changes of average precision and sensitivities from run A to run B, by key; Holm's p is not adjusted yet.

    No single image has these metrics, so that there are no units on which they are better or worse. `draws` are those
    of :func:`_changes`.
    """
    # Both runs are ranked in one way: by confidence only where every box of both states one.
    ranking = RankingMetrics.of([*a, *b], label_matching)
    metrics = ranking.metrics()
    # By metric: its value in the run, and without each unit.
    of_a, of_b = (ranking.jackknifed(ranking.rank(run), groups=units, seed=draws["seed"]) for run in (a, b))
    # The test swaps the runs' values of a unit: the jackknife gives one to each, whose mean is the metric.
    p_values = swap_p_values([of_a[key].as_mean for key in metrics], [of_b[key].as_mean for key in metrics], **draws)
    changes = {}
    for (key, metric), p in zip(metrics.items(), p_values, strict=True):
        difference = intervals.jackknifed_difference(of_a[key], of_b[key]).estimate
        estimates = of_a[key].estimate, of_b[key].estimate, difference
        changes[key] = Change(metric, *estimates, Units(better=0, worse=0, tied=0), p, holm=math.nan)
    return changes


def _with_holm(changes: dict[Any, Change]) -> dict[Any, Change]:
    """The changes with p adjusted for all of them, as one family of tests."""
    adjusted = holm([change.p for change in changes.values()])
    return {key: change._replace(holm=p) for (key, change), p in zip(changes.items(), adjusted, strict=True)}


def _by_id(images: Sequence[Prediction], run: str) -> dict[str, Prediction]:
    """The images of a run by their ids; refused where two have one id."""
    by_id = {image.id: image for image in images}
    if len(by_id) < len(images):
        name = Counter(image.id for image in images).most_common(1)[0][0]
        raise ValueError(
            f"Expected one image per id in run {run}, got {len(images) - len(by_id)} too many, {name!r} among them. "
            "Evaluate on a dataset whose ids differ."
        )
    return by_id


def _check_references(pairs: Sequence[tuple[Prediction, Prediction]], images_a: int, images_b: int) -> None:
    """Refuse runs without images in common, or whose references of an image differ.

    Args:
        pairs: the predictions of run A and of run B for each image that both have.
        images_a: how many images run A has, for the message.
        images_b: how many run B has.
    """
    if not pairs:
        raise ValueError(
            f"Expected images that both runs have, got none: {images_a} in A and {images_b} in B, and no id in common. "
            "Compare runs on the same dataset and split."
        )
    different_ids = []
    for a, b in pairs:
        # A run that does not know the patient contradicts nothing.
        is_other_patient = None not in (a.patient, b.patient) and a.patient != b.patient
        if is_other_patient or _reference(a) != _reference(b):
            different_ids.append(a.id)
    if different_ids:
        raise ValueError(
            "Expected the same references in both runs, got others: boxes, labels, ignored regions, size or patient of "
            f"{different_ids[0]!r} differ, as on {len(different_ids)} of {len(pairs)} images. "
            "Evaluate both runs on the same dataset."
        )


def _reference(image: Prediction) -> tuple[Any, ...]:
    """The boxes, labels, ignored regions and size of an image, which both runs must have alike."""
    # Lists of a few numbers are compared faster than arrays of them.
    return image.gt.tolist(), image.gt_labels, image.ignore.tolist(), image.width, image.height


def _sentence(key: str, change: Change, units: str) -> str:
    """A sentence with both values of a metric; for a change that is shown, also its interval and the units behind it.

    Args:
        key: of the metric.
        change: of it.
        units: `patients` or `images`, which are counted.
    """
    heading = _short_heading(change)
    if math.isnan(change.difference.value):
        return f"{capitalised(heading)} is not measured in both runs."
    digits = _digits(change)
    values = f"{heading} {change.a.value:.{digits}f} → {change.b.value:.{digits}f}"
    if not change.direction:
        return f"{capitalised(values)}: no change shown."
    word = "better" if change.direction > 0 else "worse"
    opening = f"Boxes fit {word}" if key == "mean_iou" else word.capitalize()
    interval = f"{change.difference.low:+.{digits}f} to {change.difference.high:+.{digits}f}"
    # Metrics of all images together have no units on which they are better or worse.
    better, worse, _ = change.units
    counts = f", on {better} {units} better, on {worse} worse" if better or worse else ""
    return f"{opening}: {values} ({interval}){counts}."


def _format_change(change: Change, scope: str = "") -> str:
    """The metric and its change, as in `F1@0.5 +0.12`; `scope` says on which label, as in ` on mass`."""
    return f"{_short_heading(change)}{scope} {change.difference.value:+.{_digits(change)}f}"


def _short_heading(change: Change) -> str:
    """The heading of the metric for a sentence, as F1@0.5: two numbers in a row are hard to read."""
    return change.metric.heading.replace(" at IoU ", "@")


def _digits(change: Change) -> int:
    """How many digits the change is written with: two, or three where it or an end of its interval would read as 0."""
    reads_as_0 = any(abs(number) < 0.005 for number in change.difference)
    return _DECIMALS if change.direction and reads_as_0 else 2


def p_cell(p: float) -> str:
    """A p value for a cell of a table, whose heading says what it is.

    Example:
        >>> p_cell(0.03125), p_cell(1e-9), p_cell(float("nan"))
        ('0.031', '< 0.001', '–')
    """
    return NO_VALUE if math.isnan(p) else format_p(p).removeprefix("p ").removeprefix("= ")
