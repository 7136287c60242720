"""``nystrom transform``: features or components of the rows of a data file."""

from __future__ import annotations

import argparse

import numpy as np

from nystrom.commands.data_in import Unseen, chunks, of_rows, open_source, split_model
from nystrom.commands.data_out import TABLE_SUFFIXES, open_output, tell_written
from nystrom.commands.options import JSON_HELP, Subparsers, check_output


def add_parser(subparsers: Subparsers) -> argparse.ArgumentParser:
    """Add the ``transform`` subcommand."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "transform",
        help="write the features or components of the rows of a data file",
        description="Write what a model of features or pca makes of each row, one column per component.",
        epilog="example: nystrom transform digits.nystrom digits.npy --out components.npy",
    )
    parser.add_argument("model", metavar="MODEL", help="a model file of 'nystrom fit --model features' or 'pca'")
    parser.add_argument("data", metavar="DATA", help="the file, or - for a table on standard input")
    parser.add_argument(
        "--out", default="-", metavar="FILE", help=".csv, .jsonl, .parquet or .npy; - is CSV on standard output"
    )
    parser.add_argument("--json", action="store_true", help=JSON_HELP)
    parser.set_defaults(run=run)
    return parser


def run(args: argparse.Namespace) -> int:
    """Transform and write."""
    from nystrom import load

    check_output(args.out, TABLE_SUFFIXES, inputs=[args.data, args.model])
    encoder, machine = split_model(load(args.model))
    if not hasattr(machine, "transform"):
        kind = type(machine).__name__
        raise ValueError(f"{args.model} holds a {kind}, which does not transform; use 'nystrom predict'.")
    names = [str(name) for name in machine.get_feature_names_out()]
    unseen = Unseen(encoder)
    with open_source(args.data) as source, open_output(args.out, lines=args.json) as out:
        for chunk in chunks(source, encoder):
            unseen.look(chunk)
            (values,) = of_rows(lambda X: (machine.transform(X),), chunk.X)
            out.write({name: np.ascontiguousarray(values[:, j]) for j, name in enumerate(names)})
    unseen.warn(source.name)
    tell_written(out, f"rows of {len(names)} columns", args.out, as_json=args.json)
    return 0
