"""``nystrom predict``: a model file, a data file, predictions."""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

from nystrom.commands.data_in import Chunk, Unseen, chunks, of_rows, open_source, split_model
from nystrom.commands.data_out import TABLE_SUFFIXES, open_output, tell_written
from nystrom.commands.options import JSON_HELP, Subparsers, check_output


def add_parser(subparsers: Subparsers) -> argparse.ArgumentParser:
    """Add the ``predict`` subcommand."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "predict",
        help="predict the rows of a data file with a saved model",
        description="Write one prediction per row; it is the last column. Rows are read and written in pieces, so "
        "files need not fit in memory.",
        epilog="example: nystrom predict houses.nystrom new.csv --keep --out priced.csv",
    )
    parser.add_argument("model", metavar="MODEL", help="a model file")
    parser.add_argument("data", metavar="DATA", help="the file, or - for a table on standard input")
    parser.add_argument(
        "--out", default="-", metavar="FILE", help=".csv, .jsonl, .parquet or .npy; - is CSV on standard output"
    )
    parser.add_argument("--json", action="store_true", help=JSON_HELP)
    parser.add_argument("--keep", action="store_true", help="write the columns of DATA, too, before the predictions")
    parser.add_argument(
        "--proba", action="store_true", help="write the probability of each class before the prediction"
    )
    parser.add_argument("--std", action="store_true", help="write the standard deviation of a new target, too (gp)")
    parser.add_argument(
        "--interval",
        type=float,
        metavar="SHARE",
        help="write intervals that hold this share of new targets, such as 0.9",
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
    if args.interval is not None and not hasattr(machine, "predict_interval"):
        raise ValueError(f"--interval: {kind} predicts no numbers; --proba gives probabilities of classes.")
    if args.keep and args.out.endswith(".npy"):
        raise ValueError("--keep writes the columns of a table; give --out a name that ends in .csv or .parquet.")
    name = args.name or getattr(encoder, "target", None) or "prediction"
    with open_source(args.data) as source:
        if args.keep and not source.is_table:
            raise ValueError(f"--keep: {source.name} has no column names to keep.")
        unseen = Unseen(encoder)
        with open_output(args.out, lines=args.json) as out:
            progress = make_progress(args.out != "-" and not args.quiet)
            progress.start("predict", 0)  # the number of rows of a table is unknown until its end
            for chunk in chunks(source, encoder, keep=args.keep):
                unseen.look(chunk)
                out.write(_columns(machine, chunk, name, proba=args.proba, std=args.std, interval=args.interval))
                progress.advance(chunk.X.shape[0])
            progress.stop()
    unseen.warn(source.name)
    tell_written(out, "predictions", args.out, as_json=args.json)
    return 0


def _columns(
    machine: Any, chunk: Chunk, name: str, *, proba: bool, std: bool, interval: float | None
) -> dict[str, Any]:
    columns: dict[str, Any] = {}
    if chunk.batch is not None:
        columns = dict(zip(chunk.batch.schema.names, chunk.batch.columns, strict=True))
    if std:
        predicted, deviation = of_rows(lambda X: machine.predict(X, return_std=True, include_noise=True), chunk.X)
        added = {f"{name}_std": deviation}
    else:
        (predicted,), added = of_rows(lambda X: (machine.predict(X),), chunk.X), {}
    if interval is not None:
        (ends,) = of_rows(lambda X: (machine.predict_interval(X, interval),), chunk.X)
        names = [name] if ends.ndim == 2 else [f"{name}_{j}" for j in range(ends.shape[1])]
        sides = ends.reshape(len(ends), -1).T
        added |= dict(zip([f"{each}_{side}" for each in names for side in ("low", "high")], sides, strict=True))
    if proba:
        (values,) = of_rows(lambda X: (machine.predict_proba(X),), chunk.X)
        added = {f"p_{label}": values[:, j] for j, label in enumerate(machine.classes_)}
    last = (
        {name: predicted}
        if predicted.ndim == 1
        else {f"{name}_{j}": predicted[:, j] for j in range(predicted.shape[1])}
    )
    # If a data column has the name of a prediction, the prediction is renamed.
    while any(key in columns for key in (*added, *last)):
        added = {f"predicted_{key}": value for key, value in added.items()}
        last = {f"predicted_{key}": value for key, value in last.items()}
    return {**columns, **{key: np.ascontiguousarray(value) for key, value in {**added, **last}.items()}}
