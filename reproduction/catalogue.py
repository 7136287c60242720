"""The paper's experiments as frozen values: one :class:`Experiment` per figure.

Ranks, compression factors, kernels, row numbers and the 50 trials are the paper's. It prints the figures' axes but not
their grids; those here hold every size that its text names (m = 4, 8, 30, 40, 644, 966; r from 2 to 30 and so on).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

TRIALS = 50
RIDGE = 0.25


@dataclass(frozen=True)
class Method:
    """An approximation method: how landmarks are chosen, and how the rank is cut."""

    key: str
    label: str
    landmarks: Literal["uniform", "column-norm", "kmeans", "sketched-kmeans"]
    compression: float | None = None
    factor: Literal["standard", "optimal", "written-standard", "written-optimal"] = "optimal"


@dataclass(frozen=True)
class Study:
    """One data set, one sweep of sizes, several methods: the rows behind one or two panels.

    Attributes
    ----------
    name
        Name of the study, unique within its experiment.
    dataset, stand_in
        The data set of the paper, and its marked replacement if it is not available.
    shaping
        What the paper does to the rows: "stack4" (every row four times), "columns4" (every column four times), or "".
    first
        Number of leading rows to use; 0 for all.
    kernel
        "gaussian" with the paper's bandwidth, or "quadratic": ⟨x, y⟩².
    task
        "kernel": ‖K − L Lᵀ‖_F / ‖K‖_F; "ridge": ‖α̂ − α*‖ / ‖α*‖ with λ = 1/4.
    sizes
        The pairs (m, r).
    methods
        The methods to compare.
    svd
        Whether to compute the best rank-r approximation too.
    single
        Whether rows are held in float32.
    """

    name: str
    dataset: str
    methods: tuple[Method, ...]
    sizes: tuple[tuple[int, int], ...]
    stand_in: str | None = None
    shaping: str = ""
    first: int = 0
    kernel: Literal["gaussian", "quadratic"] = "gaussian"
    task: Literal["kernel", "ridge"] = "kernel"
    svd: bool = True
    single: bool = False


@dataclass(frozen=True)
class Panel:
    """One pair of axes: the study, the quantities on both axes, and the methods drawn (all if empty)."""

    kind: Literal["error", "time", "rows", "map"]
    study: str
    x: Literal["m", "r"] = "m"
    title: str = ""
    methods: tuple[str, ...] = ()
    equal_time: tuple[str, str] | None = None
    stage: Literal["total", "algorithm"] = "total"


@dataclass(frozen=True)
class Experiment:
    """One figure of the paper (or one of ours): studies to run, panels to draw, and what the paper says about it."""

    key: str
    title: str
    says: str
    studies: tuple[Study, ...]
    panels: tuple[Panel, ...]
    ours: bool = False


def _sketched(gamma: float) -> Method:
    return Method(f"sketched-{gamma:g}", f"sketched k-means, γ = {gamma:g}", "sketched-kmeans", gamma)


UNIFORM = Method("uniform", "uniform", "uniform")
COLUMN_NORM = Method("column-norm", "column norm", "column-norm")
CLUSTERED = Method("clustered", "clustered (k-means)", "kmeans")
GAMMAS = (0.01, 0.02, 0.05, 0.2)
_SWEEP = (UNIFORM, COLUMN_NORM, CLUSTERED, *map(_sketched, GAMMAS))
_ZOOM = ("clustered", *(f"sketched-{gamma:g}" for gamma in GAMMAS))
_FOUR = ("uniform", "column-norm", "clustered", "sketched-0.02")
_M = (3, 6, 9, 15, 21, 30)
_R = (2, 5, 10, 15, 20, 25, 30)


def _factors(landmarks: Literal["uniform", "kmeans"], *, written: bool) -> tuple[Method, ...]:
    pair = (
        Method("standard", "standard (Algorithm 1)", landmarks, factor="standard"),
        Method("optimal", "via QR (Algorithm 2)", landmarks, factor="optimal"),
    )
    literal = (
        Method("written-standard", "Algorithm 1 as written", landmarks, factor="written-standard"),
        Method("written-optimal", "Algorithm 2 as written", landmarks, factor="written-optimal"),
    )
    return pair + literal if written else pair


def _by_m(sizes: tuple[int, ...], rank: int) -> tuple[tuple[int, int], ...]:
    return tuple((m, rank) for m in sizes)


def _by_r(ranks: tuple[int, ...], factor: int = 1) -> tuple[tuple[int, int], ...]:
    return tuple((factor * r, r) for r in ranks)


TOY = Experiment(
    key="toy",
    title="Section 4.1: a 3 × 3 example",
    says="With columns 1 and 2 and r = 1 the standard method has error 0.99, via QR it has 0.01, the best possible. "
    "The inequality between the two always holds, in Frobenius and in spectral norm.",
    studies=(),
    panels=(),
)

FIGURE_1 = Experiment(
    key="fig1",
    title="Figure 1: standard against QR on a synthetic set",
    says="Equal at m = r = 2; via QR reaches the SVD at m = 4, where the standard method needs m > 40; the map of "
    "rank 2 via QR is linearly separable, the standard one is not.",
    studies=(
        Study(
            "rings",
            "rings",
            _factors("uniform", written=False),
            _by_m((2, 4, 6, 8, 12, 16, 24, 32, 40), 2),
            kernel="quadratic",
        ),
    ),
    panels=(
        Panel("rows", "rings", title="data in the plane"),
        Panel("error", "rings", title="kernel approximation error, r = 2"),
        Panel("map", "rings", title="standard, m = 4", methods=("standard",)),
        Panel("map", "rings", title="via QR, m = 4", methods=("optimal",)),
    ),
)

_SATIMAGE = {"dataset": "satimage", "shaping": "stack4", "single": True}
FIGURE_2 = Experiment(
    key="fig2",
    title="Figure 2: standard against QR on satimage",
    says="Landmarks by k-means. Equal at m = r; the standard error need not fall with m; via QR reaches the SVD at "
    "m = 2r, takes at most about twice the time, and is better at equal time (m = 4 against 8, 10 against 30).",
    studies=(
        Study(
            name="satimage-r2",
            methods=_factors("kmeans", written=True),
            sizes=_by_m((2, 4, 6, 8, 10, 12, 16, 20), 2),
            **_SATIMAGE,  # type: ignore[arg-type]
        ),
        Study(
            name="satimage-r5",
            methods=_factors("kmeans", written=True),
            sizes=_by_m((5, 10, 15, 20, 25, 30), 5),
            **_SATIMAGE,  # type: ignore[arg-type]
        ),
    ),
    panels=tuple(
        panel
        for r in (2, 5)
        for panel in (
            Panel(
                "error",
                f"satimage-r{r}",
                title=f"kernel approximation error, r = {r}",
                methods=("standard", "optimal"),
            ),
            Panel(
                "time",
                f"satimage-r{r}",
                title=f"run time of the algorithm, r = {r}",
                equal_time=("written-optimal", "written-standard"),
                stage="algorithm",
            ),
        )
    ),
)


def _small(name: str, sizes: tuple[tuple[int, int], ...]) -> Study:
    if name == "dna":
        return Study("dna", "dna", _SWEEP, sizes)
    return Study("protein", "protein", _SWEEP, sizes, stand_in="protein-mix", single=True)


FIGURE_3 = Experiment(
    key="fig3",
    title="Figure 3: error against m at r = 3, dna and protein",
    says="Clustered and sketched (γ = 0.02) beat uniform and column norm and reach the SVD at small m, such as m = r; "
    "uniform does not at m = 10r. The error falls as γ grows, and γ = 0.01 is accurate already.",
    studies=(_small("dna", _by_m(_M, 3)), _small("protein", _by_m(_M, 3))),
    panels=(
        Panel("error", "dna", title="dna", methods=_FOUR),
        Panel("error", "dna", title="dna (zoom)", methods=_ZOOM),
        Panel("error", "protein", title="protein", methods=_FOUR),
        Panel("error", "protein", title="protein (zoom)", methods=_ZOOM),
    ),
)
FIGURE_4 = Experiment(
    key="fig4",
    title="Figure 4: error against r with m = r, dna and protein",
    says="Clustered and sketched beat uniform and column norm at every rank, with roughly the accuracy of the SVD; the "
    "error falls as γ grows.",
    studies=(_small("dna", _by_r(_R)), _small("protein", _by_r(_R))),
    panels=tuple(replace(panel, x="r") for panel in FIGURE_3.panels),
)


def _large(name: str, sizes: tuple[tuple[int, int], ...]) -> Study:
    gamma = 0.01 if name == "mnist" else 0.005
    return Study(
        name,
        name,
        (UNIFORM, CLUSTERED, _sketched(gamma)),
        sizes,
        stand_in=None if name == "mnist" else "epsilon-like",
        first=60000,
        svd=False,
        single=True,
    )


def _large_panels(x: Literal["m", "r"]) -> tuple[Panel, ...]:
    panels: list[Panel] = []
    for name in ("mnist", "epsilon"):
        panels.append(Panel("error", name, x=x, title=f"kernel approximation error, {name}"))
        panels.append(Panel("time", name, x=x, title=f"run time, {name}"))
    return tuple(panels)


FIGURE_5 = Experiment(
    key="fig5",
    title="Figure 5: error and run time against m at r = 3, mnist and epsilon",
    says="Sketched (p' = 8 and 10) beats uniform, is almost as accurate as clustered, and an order of magnitude "
    "faster; on epsilon its m = r beats uniform's m = 10r.",
    studies=(_large("mnist", _by_m(_M, 3)), _large("epsilon", _by_m(_M, 3))),
    panels=_large_panels("m"),
)
FIGURE_6 = Experiment(
    key="fig6",
    title="Figure 6: error and run time against r with m = r, mnist and epsilon",
    says="Sketched beats uniform at every rank, is almost as accurate as clustered, and an order of magnitude faster.",
    studies=(_large("mnist", _by_r(_R)), _large("epsilon", _by_r(_R))),
    panels=_large_panels("r"),
)

_RIDGE_METHODS = (UNIFORM, COLUMN_NORM, CLUSTERED)
FIGURE_7 = Experiment(
    key="fig7",
    title="Figure 7: kernel ridge regression on cpusmall",
    says="With γ = 0.2 (p' = 10) sketched is significantly better than uniform and column norm, nearly as accurate as "
    "the SVD at m = 2r, and no different from clustered.",
    studies=(
        Study(
            "cpusmall-m",
            "cpusmall",
            (*_RIDGE_METHODS, _sketched(0.2)),
            _by_m((82, 123, 164, 246, 328, 410), 82),
            shaping="columns4",
            task="ridge",
        ),
        Study(
            "cpusmall-r",
            "cpusmall",
            (*_RIDGE_METHODS, _sketched(0.2)),
            _by_r((41, 82, 123, 164, 205, 246), 2),
            shaping="columns4",
            task="ridge",
        ),
    ),
    panels=(
        Panel("error", "cpusmall-m", title="error of α̂, r = 82"),
        Panel("error", "cpusmall-r", x="r", title="error of α̂, m = 2r"),
    ),
)
FIGURE_8 = Experiment(
    key="fig8",
    title="Figure 8: kernel ridge regression on E2006-tfidf",
    says="With p' = 10 sketched is much more accurate than uniform and column norm and two orders of magnitude faster "
    "than clustered; m = 644 takes the time of uniform's m = 966 (error 0.074 against 0.187).",
    studies=(
        Study(
            "e2006",
            "E2006-tfidf",
            (*_RIDGE_METHODS, _sketched(6.5e-5)),
            _by_m((161, 322, 483, 644, 805, 966), 161),
            stand_in="rfc-tfidf",
            first=5363,
            task="ridge",
        ),
    ),
    panels=(
        Panel("error", "e2006", title="error of α̂, r = 161"),
        Panel(
            "time",
            "e2006",
            title="run time, r = 161",
            equal_time=("sketched-6.5e-05", "uniform"),
        ),
    ),
)
DIGITS = Experiment(
    key="digits",
    title="scikit-learn's digits, as in Figures 3 and 4",
    says="Not in the paper: the same comparison on a set that needs no download.",
    studies=(
        Study("digits-m", "digits", (UNIFORM, COLUMN_NORM, CLUSTERED, _sketched(0.2)), _by_m(_M, 3)),
        Study("digits-r", "digits", (UNIFORM, COLUMN_NORM, CLUSTERED, _sketched(0.2)), _by_r(_R)),
    ),
    panels=(
        Panel("error", "digits-m", title="digits, r = 3"),
        Panel("error", "digits-r", x="r", title="digits, m = r"),
    ),
    ours=True,
)

CATALOGUE: tuple[Experiment, ...] = (
    TOY,
    FIGURE_1,
    FIGURE_2,
    FIGURE_3,
    FIGURE_4,
    FIGURE_5,
    FIGURE_6,
    FIGURE_7,
    FIGURE_8,
    DIGITS,
)
QUICK_TRIALS = 3
_QUICK_ROWS = 2000


def select(keys: tuple[str, ...] = ()) -> tuple[Experiment, ...]:
    """Return the experiments with these keys, in the order of the catalogue; without keys, all of them.

    Examples
    --------
    >>> [experiment.key for experiment in select(("fig3", "toy"))]
    ['toy', 'fig3']
    """
    known = [experiment.key for experiment in CATALOGUE]
    unknown = [key for key in keys if key not in known]
    if unknown:
        raise ValueError(f"figure must be among {', '.join(known)}; got {', '.join(map(repr, unknown))}.")
    return tuple(experiment for experiment in CATALOGUE if not keys or experiment.key in keys)


def quick(experiment: Experiment) -> Experiment:
    """Return the experiment with fewer rows and sizes: it runs the same code in seconds, with other results."""
    return replace(experiment, studies=tuple(map(_quick_study, experiment.studies)))


def _quick_study(study: Study) -> Study:
    rows = 5000 if study.dataset in ("mnist", "epsilon") else _QUICK_ROWS
    rows = {"rings": 4000, "E2006-tfidf": 800}.get(study.dataset, rows)
    # Most claims concern the first, a middle and the last size, and the size nearest to m = 2r.
    keep = sorted({0, 1, len(study.sizes) // 2, len(study.sizes) - 1})
    sizes = tuple(study.sizes[index] for index in keep)
    if study.task == "ridge":
        part = 8 if study.dataset == "E2006-tfidf" else 4
        sizes = tuple((m // part, r // part) for m, r in sizes)
    return replace(study, first=min(study.first or rows, rows), sizes=sizes)
