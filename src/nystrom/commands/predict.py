"""``nystrom predict``: a model file, a data file, predictions."""

from __future__ import annotations

import argparse
import hashlib
import json
import secrets
import sys
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from nystrom import __version__
from nystrom.commands.data_in import Chunk, Unseen, chunks, count_rows, of_rows, open_source, split_model
from nystrom.commands.data_out import TABLE_SUFFIXES, Parts, open_output, tell_written
from nystrom.commands.options import JSON_HELP, Subparsers, check_output
from nystrom.types import Array


def add_parser(subparsers: Subparsers) -> argparse.ArgumentParser:
    """Add the ``predict`` subcommand."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "predict",
        help="predict the rows of a data file with a saved model",
        description="Write one prediction per row; it is the last column. Rows are read and written in pieces, so "
        "files need not fit in memory. The same command resumes after an interruption.",
        epilog="example: nystrom predict houses.nystrom new.csv --keep --out priced.csv",
    )
    parser.add_argument("model", metavar="MODEL", help="a model file")
    parser.add_argument("data", metavar="DATA", help="the file, or - for a table on standard input")
    parser.add_argument(
        "--out", default="-", metavar="FILE", help=".csv, .jsonl, .parquet or .npy; - is CSV on standard output"
    )
    parser.add_argument("--json", action="store_true", help=JSON_HELP)
    parser.add_argument(
        "--keep",
        action="store_true",
        help="write the columns of DATA, too, before the predictions, and whether a row is unlike those of the fit",
    )
    parser.add_argument(
        "--proba", action="store_true", help="write the probability of each class before the prediction"
    )
    parser.add_argument("--std", action="store_true", help="write the standard deviation of a new target, too (gp)")
    parser.add_argument(
        "--interval",
        type=float,
        metavar="SHARE",
        help="write intervals, or sets of classes, that hold this share of new targets, such as 0.9",
    )
    parser.add_argument("--name", metavar="COL", help="name of the prediction (default: the target's, or prediction)")
    parser.add_argument("--quiet", action="store_true", help="show no progress")
    parser.set_defaults(run=run)
    return parser


def run(args: argparse.Namespace) -> int:
    """Predict and write."""
    from nystrom import GaussianProcessRegressor, load
    from nystrom.engine.progress import make_progress

    check_output(args.out, TABLE_SUFFIXES, inputs=[args.data, args.model])
    encoder, machine = split_model(load(args.model))
    kind = type(machine).__name__
    if not hasattr(machine, "predict"):
        raise ValueError(f"{args.model} holds a {kind}, which does not predict; use 'nystrom transform'.")
    if args.proba and not hasattr(machine, "predict_proba"):
        raise ValueError(f"--proba: {kind} gives no probabilities; fit with --model logistic for them.")
    if args.std and not isinstance(machine, GaussianProcessRegressor):
        raise ValueError(f"--std: {kind} gives no deviations; fit with --model gp for them.")
    if args.interval is not None and not (hasattr(machine, "predict_interval") or hasattr(machine, "predict_set")):
        raise ValueError(f"--interval: {kind} predicts neither numbers nor classes.")
    if args.keep and args.out.endswith(".npy"):
        raise ValueError("--keep writes the columns of a table; give --out a name that ends in .csv or .parquet.")
    name = args.name or getattr(encoder, "target", None) or "prediction"
    with open_source(args.data) as source:
        if args.keep and not source.is_table:
            raise ValueError(f"--keep: {source.name} has no column names to keep.")
        unseen = Unseen(encoder)
        parts = nullcontext() if args.out == "-" else Parts(args.out, _describe_job(args))
        with parts as stored, open_output(args.out, lines=args.json) as out:
            progress = make_progress(args.out != "-" and not args.quiet)
            # The number of rows of a CSV file is unknown until its end.
            progress.start("predict", count_rows(source, encoder) or 0)
            for i, chunk in enumerate(chunks(source, encoder, keep=args.keep)):
                unseen.look(chunk)
                compute = partial(_predict, machine, chunk.X, name, args)
                n = chunk.X.shape[0]
                out.write(_kept_and_predicted(chunk, compute() if stored is None else stored.get(i, n, compute)))
                progress.advance(n)
            progress.stop()
        if stored is not None and stored.n_resumed:
            print(f"resumed after {stored.n_resumed:,} rows that were predicted before", file=sys.stderr)
    unseen.warn(source.name)
    tell_written(out, "predictions", args.out, as_json=args.json)
    return 0


def _describe_job(args: argparse.Namespace) -> str:
    """Return a key of model, data and options, by which a command resumes; standard input has a new key every time."""
    place = Path(args.data)
    status = place.stat() if place.is_file() else None
    data = [secrets.token_hex(16)] if status is None else [str(place.resolve()), status.st_size, status.st_mtime_ns]
    model = hashlib.sha256(Path(args.model).read_bytes()).hexdigest()
    return json.dumps([__version__, model, data, args.keep, args.proba, args.std, args.interval, args.name])


def _predict(machine: Any, X: Any, name: str, args: argparse.Namespace) -> dict[str, Array]:
    """Return the columns that the options ask for; the prediction is the last."""
    from nystrom.estimators.trust import has_left_out

    found: dict[str, Array] = {}
    if args.keep and has_left_out(machine):
        (found["unlike"],) = of_rows(lambda X: (machine.unlike(X),), X)
    if args.std:
        predicted, found[f"{name}_std"] = of_rows(lambda X: machine.predict(X, return_std=True, include_noise=True), X)
    else:
        (predicted,) = of_rows(lambda X: (machine.predict(X),), X)
    if args.interval is not None and hasattr(machine, "predict_set"):
        (sets,) = of_rows(lambda X: (machine.predict_set(X, args.interval),), X)
        found |= {f"may_be_{label}": sets[:, j] for j, label in enumerate(machine.classes_)}
    elif args.interval is not None:
        (ends,) = of_rows(lambda X: (machine.predict_interval(X, args.interval),), X)
        names = [name] if ends.ndim == 2 else [f"{name}_{j}" for j in range(ends.shape[1])]
        sides = ends.reshape(len(ends), -1).T
        found |= dict(zip([f"{each}_{side}" for each in names for side in ("low", "high")], sides, strict=True))
    if args.proba:
        (values,) = of_rows(lambda X: (machine.predict_proba(X),), X)
        found |= {f"p_{label}": values[:, j] for j, label in enumerate(machine.classes_)}
    if predicted.ndim == 1:
        found[name] = predicted
    else:
        found |= {f"{name}_{j}": predicted[:, j] for j in range(predicted.shape[1])}
    return {key: np.ascontiguousarray(value) for key, value in found.items()}


def _kept_and_predicted(chunk: Chunk, found: dict[str, Array]) -> dict[str, Any]:
    """Return the kept columns and the predictions; a prediction with the name of a kept column is renamed."""
    kept = {} if chunk.batch is None else dict(zip(chunk.batch.schema.names, chunk.batch.columns, strict=True))
    while any(key in kept for key in found):
        found = {f"predicted_{key}": value for key, value in found.items()}
    return {**kept, **found}
