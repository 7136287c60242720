"""``nystrom fit``: from a data file to a model file."""

from __future__ import annotations

import argparse
import os
import re
import shutil
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from nystrom.commands.data_in import Source, matrix_rows, open_source, open_table_of
from nystrom.commands.data_out import print_json
from nystrom.commands.options import (
    Subparsers,
    check_output,
    parse_count,
    parse_count_or_auto,
    parse_names,
    parse_number_or_word,
    parse_setting,
    parse_words,
)
from nystrom.exceptions import FewerLandmarksWarning, silenced
from nystrom.rows.arrow import release_arrow
from nystrom.scoring import make_scores

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
# Tried in turn where --max-memory is too small for the default of 1,000.
_FEWER_LANDMARKS = (500, 250, 100, 50)
# Columns that are listed one by one in the summary.
_MOST_LINES = 30
# Encoded rows up to this many bytes (or a quarter of --max-memory) are held; more are spooled to a temporary file.
_HELD_BYTES = 512 * 2**20


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
    machine = parser.add_argument_group("the machine")
    machine.add_argument("--n-landmarks", type=parse_count_or_auto, metavar="M", help="number, or auto (default: 1000)")
    machine.add_argument("--n-components", type=parse_count, metavar="R", help="rank; components of pca and features")
    machine.add_argument("--n-clusters", type=parse_count, metavar="C", help="clusters of cluster and spectral")
    machine.add_argument("--kernel", help="gaussian, laplacian, matern, polynomial, linear, cosine, ...")
    machine.add_argument("--gamma", type=parse_number_or_word, help="bandwidth: a number, scale or auto")
    machine.add_argument("--alpha", type=parse_number_or_word, help="regularisation: a number or auto (the default)")
    machine.add_argument("--C", type=float, help="inverse regularisation of logistic, svc and svr")
    machine.add_argument(
        "--set",
        type=parse_setting,
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="any other parameter of the estimator, such as selection=gcv; may be repeated",
    )
    table = parser.add_argument_group("the table")
    table.add_argument("--drop", type=parse_names, default=[], metavar="COLS", help="columns to leave out: a,b,c")
    table.add_argument(
        "--category", type=parse_names, default=[], metavar="COLS", help="columns of numbers that are codes, or classes"
    )
    table.add_argument(
        "--max-categories", type=parse_count, default=30, metavar="N", help="columns per text column (30)"
    )
    table.add_argument(
        "--date-format", metavar="FORMAT", help="of dates in text, such as %%d.%%m.%%Y (default: ISO 8601)"
    )
    table.add_argument("--missing", type=parse_words, metavar="WORDS", help="words for a gap, such as NA,-999,unknown")
    table.add_argument(
        "--decimal", choices=[".", ","], help="sign before decimals (default: , where ; is between the values)"
    )
    run_group = parser.add_argument_group("the run")
    run_group.add_argument("--max-memory", metavar="SIZE", help="what the fit may take, such as 2GB")
    run_group.add_argument("--n-jobs", type=int, metavar="N", help="threads (default: all cores)")
    run_group.add_argument("--seed", type=int, default=0, help="of all random choices (default: 0)")
    run_group.add_argument("--full", action="store_true", help="save what partial_fit and merge need, too")
    run_group.add_argument("--verbose", action="store_true", help="show the progress of each pass")
    run_group.add_argument("--json", action="store_true", help="print the summary as JSON")
    parser.set_defaults(run=run)
    return parser


def run(args: argparse.Namespace) -> int:
    """Fit and save; print what was done."""
    check_output(args.out, (), inputs=[args.data])
    if args.out == "-":
        raise ValueError("--out must be a file: a model is not text for standard output.")
    if args.model not in ("auto", *_UNSUPERVISED) and args.target is None:
        raise ValueError(f"--model {args.model} learns a target: say which column it is with --target.")
    if args.model == "auto" and args.target is None:
        raise ValueError(
            "say which column is to be learned with --target, or choose a --model that learns none: "
            + ", ".join(_UNSUPERVISED)
            + "."
        )
    began = time.perf_counter()
    # Where nobody asked for a number, fewer landmarks are no news.
    quiet = silenced() if args.n_landmarks else silenced(FewerLandmarksWarning)
    with open_source(args.data) as source, tempfile.TemporaryDirectory(prefix="nystrom-") as scratch, quiet:
        fitted = _fit_table(args, source, Path(scratch)) if source.is_table else _fit_matrix(args, source)
    fitted["seconds"] = time.perf_counter() - began
    model = fitted.pop("estimator")
    from nystrom import save

    save(model, args.out, full=args.full)
    fitted.update(saved=args.out, file_bytes=os.path.getsize(args.out))
    print_json(fitted) if args.json else _print_summary(fitted)
    return 0


def _fit_table(args: argparse.Namespace, source: Source, scratch: Path) -> dict[str, Any]:
    from sklearn.pipeline import Pipeline

    from nystrom.rows.arrow import MISSING
    from nystrom.tables import TableEncoder
    from nystrom.tables.rows import EncodedRows

    encoder = TableEncoder(
        args.target,
        max_categories=args.max_categories,
        types=dict.fromkeys(args.category, "category") or None,
        drop=args.drop or None,
        date_format=args.date_format,
        missing_values=None if args.missing is None else [*MISSING, *args.missing],
        decimal=args.decimal,
    )
    table = open_table_of(source, encoder)
    encoder.fit(table)
    release_arrow()  # what decoding held, before the fit takes its own
    supervised = args.model not in _UNSUPERVISED
    choice, why = _choose(args.model, encoder.target_)
    machine = _make_machine(args, choice)
    labels = encoder.class_labels() if choice in _CLASSIFIERS else None
    if labels is not None and len(labels) == 1:
        raise ValueError(
            f"the target {args.target!r} of {source.name} is {labels.tolist()[0]!r} in every row: there is nothing to "
            f"tell apart."
        )
    if isinstance(_weights(machine), dict):
        labels = None
    encoded = EncodedRows(encoder.coding, table, has_target=supervised, labels=labels, fitted=True)
    rows = _near(encoded, args.max_memory, scratch)
    machine = _fit_machine(machine, rows, given=args.n_landmarks is not None)
    machine.set_params(verbose=0)  # what --verbose tells of is the fit, neither its score nor later predictions
    score = _score(machine, rows) if supervised else {}
    if labels is not None:
        machine.classes_ = labels[machine.classes_]
    described = {
        "data": {
            "name": source.name,
            "rows": rows.shape[0],
            "columns": len(encoder.columns_),
            "encoded": rows.shape[1],
        },
        "encoding": [
            {"name": c.name, "kind": c.kind, "features": len(c.features), "note": c.note} for c in encoder.columns_
        ],
    }
    pipeline = Pipeline([("encoder", encoder), ("model", machine)])
    return {**described, **_describe(machine, args.target if supervised else None, why), **score, "estimator": pipeline}


def _weights(machine: Any) -> Any:
    return getattr(machine, "class_weight", None)


def _fit_machine(machine: Any, rows: Any, *, given: bool) -> Any:
    """Fit; where nobody gave a number of landmarks and the memory allowed is too small for the default, take fewer."""
    from nystrom.exceptions import MemoryBudgetError

    for fewer in () if given else _FEWER_LANDMARKS:
        try:
            return machine.fit(rows)
        except MemoryBudgetError:
            machine.set_params(n_landmarks=fewer)
            if getattr(machine, "n_components", None) is not None:
                machine.set_params(n_components=min(machine.n_components, fewer))
    return machine.fit(rows)


def _fit_matrix(args: argparse.Namespace, source: Source) -> dict[str, Any]:
    rows = matrix_rows(source, args.target)
    supervised = args.model not in _UNSUPERVISED
    choice, why = args.model, "as asked"
    if choice == "auto":
        y = np.asarray(rows.target())
        few = y.dtype.kind not in "f" or (np.all(y == np.rint(y)) and len(np.unique(y)) <= 20)
        choice, why = ("classifier", "the target has few values") if few else ("ridge", "the target is numbers")
    machine = _fit_machine(_make_machine(args, choice), rows, given=args.n_landmarks is not None)
    machine.set_params(verbose=0)
    score = _score(machine, rows) if supervised else {}
    described = {
        "data": {"name": source.name, "rows": rows.shape[0], "columns": rows.shape[1], "encoded": rows.shape[1]}
    }
    return {**described, **_describe(machine, args.target if supervised else None, why), **score, "estimator": machine}


def _choose(model: str, target: Any) -> tuple[str, str]:
    if model != "auto":
        if model in _CLASSIFIERS and not target.is_class:
            raise ValueError(
                f"--model {model} needs a target of classes, and {target.name!r} is numbers with many values; take "
                f"--model ridge, svr or gp."
            )
        if model in ("ridge", "svr", "gp") and target.kind == "text":
            raise ValueError(
                f"--model {model} needs a target of numbers, and {target.name!r} is text; take --model classifier, "
                f"logistic or svc."
            )
        return model, "as asked"
    if target.kind == "text":
        return "classifier", "the target is text"
    if target.is_class:
        return "classifier", f"the target has {target.n_values} whole values; --model ridge takes them as numbers"
    return "ridge", "the target is numbers"


def _make_machine(args: argparse.Namespace, choice: str) -> Any:
    import nystrom

    kind = getattr(nystrom, MODELS[choice])
    allowed = set(kind._get_param_names())
    wanted = {
        "random_state": args.seed,
        "max_memory": args.max_memory,
        "n_jobs": args.n_jobs,
        "verbose": int(args.verbose),
    }
    if "alpha" in allowed and choice not in _UNSUPERVISED:
        wanted["alpha"] = "auto"
    if choice in _UNSUPERVISED:
        # Twice the rank, the estimators' own default, is few for a table.
        wanted["n_landmarks"] = 1000
        if choice != "pca" and isinstance(args.n_landmarks, int):
            wanted["n_components"] = min(100, args.n_landmarks)
    if choice == "ridge":
        wanted["fit_intercept"] = True
    if choice == "gp":
        wanted["normalize_y"] = True
    given = {
        name: getattr(args, name)
        for name in ("n_landmarks", "n_components", "n_clusters", "kernel", "gamma", "alpha", "C")
        if getattr(args, name) is not None
    }
    given.update(args.set)
    for name in given:
        if name not in allowed:
            raise ValueError(
                f"--model {choice} ({kind.__name__}) has no parameter {name!r}; it has {', '.join(sorted(allowed))}."
            )
    return kind(**{**wanted, **given})


def _near(rows: Any, max_memory: Any, scratch: Path) -> Any:
    """Return encoded rows where passes read them fast: in memory if they are small, else in a temporary file."""
    from nystrom.engine.memory import parse_memory
    from nystrom.rows import array_rows
    from nystrom.rows.binary import spool

    size = rows.shape[0] * (rows.shape[1] + 1) * 8
    budget = parse_memory(max_memory)
    # The rows are there twice while their pieces are joined.
    if size <= (_HELD_BYTES if budget is None else budget // 4):
        pieces = list(rows.pieces())
        release_arrow()
        held = array_rows(np.concatenate([piece.X for piece in pieces]))
        held.held_bytes = size  # the fit takes what is left of the budget
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
    return {"score": {"on": "the rows of the fit", "name": name, "value": found[name]}}


def _describe(machine: Any, target: str | None, why: str) -> dict[str, Any]:
    described: dict[str, Any] = {
        "model": type(machine).__name__,
        "why": why,
        "target": target,
        "landmarks": int(machine.landmarks_.shape[0]),
        "kernel": repr(machine.kernel_),
    }
    # Machines solved by conjugate gradients have no factor, and so neither rank nor error.
    if hasattr(machine, "certificate_"):
        described.update(rank=int(machine.n_components_), trace_error=float(machine.certificate_.trace.value))
    for name in ("alpha_", "amplitude_", "inertia_"):
        if isinstance(getattr(machine, name, None), float):
            described[name.rstrip("_")] = getattr(machine, name)
    if hasattr(machine, "classes_"):
        described["classes"] = machine.classes_
    return described


def _column_lines(columns: list[dict[str, Any]]) -> list[str]:
    """Return a line per column; of many columns one per kind, and one for each that has a note."""
    odd = [column for column in columns if column["note"]] if len(columns) > _MOST_LINES else columns
    lines = [f"{c['name']}: {c['kind']}" + (f" ({c['note']})" if c["note"] else "") for c in odd[:_MOST_LINES]]
    if len(odd) > _MOST_LINES:
        lines.append(f"and {len(odd) - _MOST_LINES:,} more; nystrom inspect lists them all")
    if odd is columns:
        return lines
    kinds = Counter(column["kind"] for column in columns if not column["note"])
    return [", ".join(f"{count:,} × {kind}" for kind, count in kinds.most_common()), *lines]


def _rounded(text: str) -> str:
    """Return a text with its numbers in four digits."""
    return re.sub(r"\d+\.\d{5,}(?:e[+-]?\d+)?", lambda found: f"{float(found[0]):.4g}", text)


def _print_summary(fitted: dict[str, Any]) -> None:
    data = fitted["data"]
    columns = f"{data['columns']} column{'s' * (data['columns'] != 1)}"
    print(f"read     {data['name']}: {data['rows']:,} rows, {columns}, {data['encoded']} when encoded")
    for line in _column_lines(fitted.get("encoding", [])):
        print(f"         {line}")
    target = f", target {fitted['target']!r}" if fitted["target"] is not None else ""
    print(f"model    {fitted['model']}{target} ({fitted['why']})")
    factor = f", rank {fitted['rank']}, trace error {fitted['trace_error']:.3g}" if "rank" in fitted else ""
    print(f"fit      {fitted['landmarks']} landmarks{factor}, {_rounded(fitted['kernel'])}, {fitted['seconds']:.1f} s")
    if "score" in fitted:
        score = fitted["score"]
        print(f"score    {score['name'].replace('R2', 'R²')} {score['value']:.4f} on {score['on']}")
    print(f"saved    {fitted['saved']} ({fitted['file_bytes'] / 1e6:.2f} MB)")
