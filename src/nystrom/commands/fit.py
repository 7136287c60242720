"""``nystrom fit``: from a data file to a model file."""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from nystrom.commands.data_in import (
    Source,
    add_table_options,
    make_encoder,
    matrix_rows,
    open_source,
    open_table_of,
)
from nystrom.commands.data_out import print_json
from nystrom.commands.options import (
    Subparsers,
    check_output,
    parse_count,
    parse_count_or_auto,
    parse_number_or_word,
    parse_setting,
    parse_share,
)
from nystrom.commands.terminal import format_shares
from nystrom.engine.progress import Progress, format_numbers, make_progress
from nystrom.exceptions import FewerLandmarksWarning, silenced
from nystrom.rows.arrow import Table, release_arrow
from nystrom.scoring import make_scores
from nystrom.types import Array

if TYPE_CHECKING:
    from nystrom.commands import trial
    from nystrom.rows.base import RowBlocks

MODELS = {
    "ridge": "KernelRidge",
    "classifier": "KernelRidgeClassifier",
    "logistic": "KernelLogisticRegression",
    "svc": "KernelSVC",
    "svr": "KernelSVR",
    "gp": "GaussianProcessRegressor",
    "pca": "KernelPCA",
    "cluster": "KernelKMeans",
    "spectral": "SpectralClustering",
    "features": "Nystroem",
}
_UNSUPERVISED = ("pca", "cluster", "spectral", "features")
_CLASSIFIERS = ("classifier", "logistic", "svc")
# Numbers of landmarks to try in order if --max-memory is too small for the default of 1,000.
_FEWER_LANDMARKS = (500, 250, 100, 50)
# Estimator parameters that have their own option.
_PARAMETERS = (
    *("n_landmarks", "n_components", "n_clusters", "kernel", "gamma", "degree", "coef0", "metric", "alpha", "C"),
    *("epsilon", "class_weight", "landmarks", "solver", "tol", "max_iter"),
)
# Number of leading columns named in the summary.
_MOST_LEADING = 5
# Maximum number of columns listed individually in the summary.
_MOST_LINES = 30


def add_parser(subparsers: Subparsers) -> argparse.ArgumentParser:
    """Add the ``fit`` subcommand."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "fit",
        help="fit a model to a data file, and save it",
        description="Fit a kernel machine to a table (CSV, Parquet, Feather: numbers, text, dates and gaps as they "
        "come) or to a matrix of numbers (.npy, .npz, LIBSVM text, HDF5, Zarr), and save it in a model file that "
        "'nystrom predict' and nystrom.load read. Files need not fit in memory.",
        epilog="example: nystrom fit houses.csv --target price --out houses.nystrom",
    )
    parser.add_argument("data", metavar="DATA", help="the file, or - for a table on standard input")
    parser.add_argument("--target", metavar="COL", help="the column to learn: its name, or its number in a matrix")
    parser.add_argument("--out", required=True, metavar="MODEL", help="the model file to write")
    parser.add_argument(
        "--model",
        choices=["auto", *MODELS],
        default="auto",
        help="auto: classifier if the target is text or whole numbers of at most 20 values, else ridge",
    )
    parser.add_argument(
        "--holdout",
        type=parse_share,
        default=0.2,
        metavar="SHARE",
        help="of the rows to judge a first fit by, before all rows are fitted (default: 0.2; 0 for none)",
    )
    _add_machine_options(parser.add_argument_group("the machine"))
    add_table_options(parser)
    run_group = parser.add_argument_group("the run")
    run_group.add_argument("--max-memory", metavar="SIZE", help="what the fit may take, such as 2GB")
    run_group.add_argument("--max-time", metavar="TIME", help="search for the best machine in that time, such as 5min")
    run_group.add_argument("--n-jobs", type=int, metavar="N", help="threads (default: all cores)")
    run_group.add_argument("--seed", type=int, default=0, help="seed of all random choices (default: 0)")
    run_group.add_argument("--full", action="store_true", help="save what partial_fit and merge need, too")
    run_group.add_argument("--quiet", action="store_true", help="show no progress")
    run_group.add_argument("--json", action="store_true", help="print the summary as JSON")
    parser.set_defaults(run=run)
    return parser


def _add_machine_options(machine: Any) -> None:
    machine.add_argument("--n-landmarks", type=parse_count_or_auto, metavar="M", help="number, or auto (default: 1000)")
    machine.add_argument("--n-components", type=parse_count, metavar="R", help="rank; components of pca and features")
    machine.add_argument("--n-clusters", type=parse_count, metavar="C", help="clusters of cluster and spectral")
    machine.add_argument("--kernel", help="gaussian, laplacian, matern, polynomial, linear, cosine, auto, ...")
    machine.add_argument("--gamma", type=parse_number_or_word, help="bandwidth: a number, scale or auto")
    machine.add_argument("--degree", type=float, help="of the polynomial kernel")
    machine.add_argument("--coef0", type=float, help="constant of the polynomial kernel")
    machine.add_argument(
        "--metric",
        type=parse_number_or_word,
        help="how much each column counts: none, diagonal, full or auto (default: auto where that is cheap)",
    )
    machine.add_argument("--alpha", type=parse_number_or_word, help="regularisation: a number or auto (the default)")
    machine.add_argument("--C", type=parse_number_or_word, help="inverse regularisation of logistic, svc and svr")
    machine.add_argument("--epsilon", type=float, help="errors up to this size cost nothing (svr)")
    machine.add_argument("--class-weight", metavar="balanced", help="make all classes count alike")
    machine.add_argument("--landmarks", metavar="WAY", help="how landmarks are chosen: auto, kmeans, uniform, ...")
    machine.add_argument("--solver", help="factor, cg, exact or auto")
    machine.add_argument("--tol", type=float, help="tolerance of the solver; of features: the error to reach")
    machine.add_argument("--max-iter", type=parse_count, metavar="N", help="most steps of the solver")
    machine.add_argument(
        "--set",
        type=parse_setting,
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="any other parameter of the estimator, such as selection=gcv; may be repeated",
    )


def run(args: argparse.Namespace) -> int:
    """Fit and save; print what was done."""
    check_output(args.out, (), inputs=[args.data])
    if args.out == "-":
        raise ValueError("--out must be a file: a model is not text for standard output.")
    if args.model not in ("auto", *_UNSUPERVISED) and args.target is None:
        raise ValueError(f"--model {args.model} learns a target: name its column with --target.")
    if args.model == "auto" and args.target is None:
        raise ValueError(
            "name the column to learn with --target, or choose a --model that learns none: "
            + ", ".join(_UNSUPERVISED)
            + "."
        )
    began = time.perf_counter()
    # Fewer landmarks are worth a warning only if the user gave their number.
    quiet = silenced() if args.n_landmarks else silenced(FewerLandmarksWarning)
    with open_source(args.data) as source, tempfile.TemporaryDirectory(prefix="nystrom-") as scratch, quiet:
        job = _open_table(args, source, Path(scratch)) if source.is_table else _open_matrix(args, source)
        fitted = _fit(args, job)
    fitted["seconds"] = time.perf_counter() - began
    model = fitted.pop("estimator")
    from nystrom import save

    save(model, args.out, full=args.full)
    fitted.update(saved=args.out, file_bytes=os.path.getsize(args.out))
    print_json(fitted) if args.json else _print_summary(fitted)
    return 0


@dataclass
class _Job:
    """Encoded rows and the machine to fit.

    ``labels`` are the classes that the integer target indexes. ``learned`` are parameters with the kernel that was
    scored, for the fit to all rows: there a search might choose another.
    """

    rows: RowBlocks
    machine: Any
    choice: str
    why: str
    described: dict[str, Any]
    encoder: Any = None
    labels: Array | None = None
    learned: dict[str, Any] = field(default_factory=dict)

    @property
    def learns(self) -> bool:
        return self.choice not in _UNSUPERVISED


def _open_table(args: argparse.Namespace, source: Source, scratch: Path) -> _Job:
    from nystrom.tables.rows import EncodedRows

    encoder = make_encoder(args)
    table = open_table_of(source, encoder)
    progress = make_progress(not args.quiet)
    watched = _watched(table, progress)
    progress.start("look at the columns", table.count or 0)
    encoder.fit(watched)
    progress.stop()
    release_arrow()  # free the memory of decoding before the fit
    choice, why = _choose(args.model, encoder.target_)
    labels = encoder.class_labels() if choice in _CLASSIFIERS else None
    if labels is not None and len(labels) == 1:
        raise ValueError(
            f"the target {args.target!r} of {source.name} is {labels.tolist()[0]!r} in every row: there is "
            f"nothing to learn."
        )
    if isinstance(dict(args.set).get("class_weight"), dict):
        labels = None
    learns = choice not in _UNSUPERVISED
    encoded = EncodedRows(encoder.coding, watched, has_target=learns, labels=labels, fitted=True)
    progress.start("encode the rows", table.count or 0)
    rows = _near(encoded, args.max_memory, scratch)
    progress.stop()
    n, p = rows.shape
    described = {
        "data": {"name": source.name, "rows": n, "columns": len(encoder.columns_), "encoded": p},
        "encoding": [
            {"name": c.name, "kind": c.kind, "features": len(c.features), "note": c.note or _format_note(c)}
            for c in encoder.columns_
        ],
    }
    return _Job(rows, _make_machine(args, choice, rows), choice, why, described, encoder, labels)


def _watched(table: Table, progress: Progress) -> Table:
    """Return the table with a reader that advances the progress."""

    def read(*given: Any) -> Iterator[Any]:
        for batch in table.read(*given):
            progress.advance(batch.num_rows)
            yield batch

    return replace(table, read=read)


def _format_note(column: Any) -> str:
    return f"written as {column.date_format}" if column.date_format else ""


def _open_matrix(args: argparse.Namespace, source: Source) -> _Job:
    rows = matrix_rows(source, args.target)
    choice, why = args.model, "as asked"
    if choice == "auto":
        y = np.asarray(rows.target())
        few = y.dtype.kind not in "f" or (np.all(y == np.rint(y)) and len(np.unique(y)) <= 20)
        choice, why = ("classifier", "the target has few values") if few else ("ridge", "the target is numbers")
    n, p = rows.shape
    described = {"data": {"name": source.name, "rows": n, "columns": p, "encoded": p}}
    return _Job(rows, _make_machine(args, choice, rows), choice, why, described)


def _fit(args: argparse.Namespace, job: _Job) -> dict[str, Any]:
    """Score a first fit on held-out rows, fit all rows, and return the model with its summary."""
    from nystrom.explanation import leading_columns

    said = dict.fromkeys(("score", "advice"))
    fit = partial(_fit_machine, given=args.n_landmarks is not None)

    def tell(text: str) -> None:
        if not args.quiet:
            print(text, file=sys.stderr, flush=True)

    if job.learns and args.holdout:
        said = _try(args, job, fit, tell)
    tell(f"fit to all {job.rows.shape[0]:,} rows")
    asked = job.machine.get_params(deep=False)
    machine = fit(job.machine.set_params(**job.learned), job.rows)
    machine.set_params(**{name: asked[name] for name in job.learned})
    machine.set_params(verbose=0)  # show progress of the fit only, not of later predictions
    if job.learns and said["score"] is None:
        said["score"] = _score(machine, job.rows)
    elif said["score"] is not None:
        machine.held_out_ = {key: said["score"][key] for key in ("name", "value", "low", "high", "baseline", "rows")}
    if job.labels is not None:
        machine.classes_ = job.labels[machine.classes_]
    model = machine
    if job.encoder is not None:
        from sklearn.pipeline import Pipeline

        model = Pipeline([("encoder", job.encoder), ("model", machine)])
    leading = dict(leading_columns(model)[:_MOST_LEADING])
    described = job.described | _describe(machine, args.target if job.learns else None, job.why)
    return {**described, **({"leading": leading} if leading else {}), **said, "estimator": model}


def _try(args: argparse.Namespace, job: _Job, fit: trial.Fit, tell: Callable[[str], None]) -> dict[str, Any]:
    """Return the score of a first fit on its held-out rows, and advice on likely improvements."""
    from sklearn.base import clone

    from nystrom.commands import trial

    classes, n = job.choice in _CLASSIFIERS, job.rows.shape[0]
    tried = None
    if args.kernel != "precomputed":
        tried = trial.make_trial(job.rows, args.holdout, classes=classes, max_memory=args.max_memory, seed=args.seed)
    if tried is None:
        tell(f"no rows are held out: {n:,} are too few, or the kernel is a matrix of all rows")
        return {"score": None, "advice": None}
    tell(f"first fit to {int((~tried.held).sum()):,} rows; {int(tried.held.sum()):,} are held out")
    machine = fit(clone(job.machine), tried.train())
    machine.set_params(verbose=0)
    score = trial.describe(machine, tried, job.labels)
    tell("compare with fewer landmarks and other kernels")
    m = machine.landmarks_.shape[0]
    if "n_landmarks" not in _given(args) and m < np.count_nonzero(~tried.held):
        job.machine.set_params(n_landmarks=m)  # the size that was scored, even if chosen by the fit
    words = [getattr(machine, name, None) for name in ("kernel", "metric")]
    if any(isinstance(word, str) and word == "auto" for word in words) and args.max_time is None:
        job.learned = {"kernel": machine.kernel_, "gamma": "scale", "metric": None}
    advice = trial.advise(machine, tried, score, fit, set(_given(args)))
    hints = [column for column in job.described.get("encoding", []) if "--" in column["note"]]
    return {"score": score, "advice": [*advice, *(f"{hint['name']} {hint['note']}" for hint in hints)]}


def _fit_machine(machine: Any, rows: Any, *, given: bool) -> Any:
    """Fit; if no number of landmarks is given and the memory limit is too small for the default, use fewer."""
    from nystrom.exceptions import MemoryBudgetError

    for fewer in () if given else _FEWER_LANDMARKS:
        try:
            return machine.fit(rows)
        except MemoryBudgetError:
            machine.set_params(n_landmarks=fewer)
            if getattr(machine, "n_components", None) is not None:
                machine.set_params(n_components=min(machine.n_components, fewer))
    return machine.fit(rows)


def _choose(model: str, target: Any) -> tuple[str, str]:
    if model != "auto":
        if model in _CLASSIFIERS and not target.is_class:
            raise ValueError(
                f"--model {model} needs a target of classes, and {target.name!r} is numbers with many values; use "
                f"--model ridge, svr or gp."
            )
        if model in ("ridge", "svr", "gp") and target.kind == "text":
            raise ValueError(
                f"--model {model} needs a target of numbers, and {target.name!r} is text; use --model classifier, "
                f"logistic or svc."
            )
        return model, "as asked"
    if target.kind == "text":
        return "classifier", "the target is text"
    if target.is_class:
        return "classifier", f"the target has {target.n_values} whole values; --model ridge takes them as numbers"
    return "ridge", "the target is numbers"


def _given(args: argparse.Namespace) -> dict[str, Any]:
    """Return the parameters of the estimator that the options set."""
    given = {name: getattr(args, name) for name in _PARAMETERS if getattr(args, name) is not None}
    return {**given, **dict(args.set)}


def _make_machine(args: argparse.Namespace, choice: str, rows: RowBlocks) -> Any:
    import nystrom
    from nystrom.checks import check_seconds
    from nystrom.comparison import default_metric

    kind = getattr(nystrom, MODELS[choice])
    allowed = set(kind._get_param_names())
    wanted = {
        "random_state": args.seed,
        "max_memory": args.max_memory,
        "n_jobs": args.n_jobs,
        "verbose": int(not args.quiet),
    }
    given = _given(args)
    if args.max_time is not None:
        # A first fit for the held-out score takes as long as the final one.
        limit = check_seconds(float(args.max_time) if args.max_time.isdigit() else args.max_time, "--max-time")
        given["max_time"] = (limit or 0.0) / (2 if args.holdout else 1)
    if "alpha" in allowed and choice not in _UNSUPERVISED:
        wanted["alpha"] = "auto"
    if choice in _UNSUPERVISED:
        # The estimators' default, twice the rank, is too few for a table.
        wanted["n_landmarks"] = 1000
        if choice != "pca" and isinstance(args.n_landmarks, int):
            wanted["n_components"] = min(100, args.n_landmarks)
    if choice == "ridge":
        wanted["fit_intercept"] = True
    if choice == "gp":
        wanted["normalize_y"] = True
    elif "metric" in allowed:
        kernel, gamma = given.get("kernel", "gaussian"), given.get("gamma", "scale")
        wanted["metric"] = default_metric(kernel, gamma, rows.shape[1], is_sparse=rows.is_sparse)
    for name in given:
        if name not in allowed:
            raise ValueError(
                f"--model {choice} ({kind.__name__}) has no parameter {name!r}; it has {', '.join(sorted(allowed))}."
            )
    # "none" on the command line means None.
    return kind(**{**wanted, **{name: None if value == "none" else value for name, value in given.items()}})


def _near(rows: Any, max_memory: Any, scratch: Path) -> Any:
    """Return encoded rows stored for fast passes: in memory if they are small, else in a temporary file."""
    from nystrom.engine.memory import HELD_BYTES, parse_memory
    from nystrom.rows import array_rows
    from nystrom.rows.binary import spool

    size = rows.shape[0] * (rows.shape[1] + 1) * 8
    budget = parse_memory(max_memory)
    # Joining the pieces needs twice the memory of the rows.
    if size <= (HELD_BYTES if budget is None else budget // 4):
        pieces = list(rows.pieces())
        release_arrow()
        held = array_rows(np.concatenate([piece.X for piece in pieces]))
        held.held_bytes = size  # the fit gets the rest of the budget
        return held.with_target(np.concatenate([piece.y for piece in pieces])) if rows.has_target else held
    if shutil.disk_usage(scratch).free < 2 * size:
        return rows  # decoded again in every pass
    spooled = spool(rows, folder=scratch, n_features=rows.shape[1], block_rows=None)
    release_arrow()
    return spooled


def _score(machine: Any, rows: Any) -> dict[str, Any]:
    """Return the score on the rows of the fit, summed block by block."""
    scores = make_scores(machine)
    for block in rows.iterate():
        scores.add(np.asarray(block.y), np.asarray(machine.predict(block.X)))
    found = scores.result()
    name = "accuracy" if "accuracy" in found else "R2"
    return {"on": "the rows of the fit", "name": name, "value": found[name]}


def _describe(machine: Any, target: str | None, why: str) -> dict[str, Any]:
    described: dict[str, Any] = {
        "model": type(machine).__name__,
        "why": why,
        "target": target,
        "landmarks": int(machine.landmarks_.shape[0]),
        "kernel": repr(machine.kernel_),
    }
    # Machines solved by conjugate gradients have no factor, hence neither rank nor error.
    if hasattr(machine, "certificate_"):
        described.update(rank=int(machine.n_components_), trace_error=float(machine.certificate_.trace.value))
    for name in ("alpha_", "amplitude_", "inertia_"):
        if isinstance(getattr(machine, name, None), float):
            described[name.rstrip("_")] = getattr(machine, name)
    if hasattr(machine, "classes_"):
        described["classes"] = machine.classes_
    return described


def _column_lines(columns: list[dict[str, Any]]) -> list[str]:
    """Return a line per column; for many columns, a line per kind and per column with a note."""
    odd = [column for column in columns if column["note"]] if len(columns) > _MOST_LINES else columns
    lines = [f"{c['name']}: {c['kind']}" + (f" ({c['note']})" if c["note"] else "") for c in odd[:_MOST_LINES]]
    if len(odd) > _MOST_LINES:
        lines.append(f"and {len(odd) - _MOST_LINES:,} more; nystrom inspect lists them all")
    if odd is columns:
        return lines
    kinds = Counter(column["kind"] for column in columns if not column["note"])
    return [", ".join(f"{count:,} × {kind}" for kind, count in kinds.most_common()), *lines]


def _print_summary(fitted: dict[str, Any]) -> None:
    from nystrom.commands import trial

    data = fitted["data"]
    columns = f"{data['columns']} column{'s' * (data['columns'] != 1)}"
    print(f"read     {data['name']}: {data['rows']:,} rows, {columns}, {data['encoded']} when encoded")
    for line in _column_lines(fitted.get("encoding", [])):
        print(f"         {line}")
    target = f", target {fitted['target']!r}" if fitted["target"] is not None else ""
    print(f"model    {fitted['model']}{target} ({fitted['why']})")
    factor = f", rank {fitted['rank']}, trace error {fitted['trace_error']:.3g}" if "rank" in fitted else ""
    kernel = format_numbers(fitted["kernel"])
    print(f"fit      {fitted['landmarks']} landmarks{factor}, {kernel}, {fitted['seconds']:.1f} s")
    if fitted["score"] is not None:
        _print_block("score", trial.lines(fitted["score"]))
    if "leading" in fitted:
        print(f"leading  {format_shares(fitted['leading'])} (shares of the effect on predictions)")
    print(f"saved    {fitted['saved']} ({fitted['file_bytes'] / 1e6:.2f} MB)")
    if fitted["score"] is not None:
        page = f"nystrom report {shlex.quote(fitted['saved'])} DATA shows why, on rows with a known target"
        _print_block("next", [*(fitted["advice"] or []), page])


def _print_block(name: str, lines: list[str]) -> None:
    for i, line in enumerate(lines):
        print(f"{name if i == 0 else '':<8} {line}")
