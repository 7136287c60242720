"""``nystrom error``: the error of a model's approximation of the kernel matrix of some rows."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import Any

from nystrom.commands.data_in import matrix_rows, open_source, open_table_of, split_model
from nystrom.commands.data_out import print_json
from nystrom.commands.options import Subparsers


def add_parser(subparsers: Subparsers) -> argparse.ArgumentParser:
    """Add the ``error`` subcommand."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "error",
        help="estimate the kernel approximation error of a saved model on a data file",
        description="Estimate ‖K − L Lᵀ‖ / ‖K‖ for the rows of a data file, with an interval, without forming K.",
    )
    parser.add_argument("model", metavar="MODEL", help="a model file")
    parser.add_argument("data", metavar="DATA", help="the file, or - for a table on standard input")
    parser.add_argument("--norm", choices=["fro", "trace", "spectral"], default="fro", help="(default: %(default)s)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=run)
    return parser


def run(args: argparse.Namespace) -> int:
    """Print the error."""
    from nystrom import load
    from nystrom.tables.rows import EncodedRows

    encoder, machine = split_model(load(args.model))
    _check_directions(machine, args.model)
    with open_source(args.data) as source:
        if encoder is None:
            rows: Any = matrix_rows(source)
        else:
            rows = EncodedRows(encoder.coding, open_table_of(source, encoder), has_target=False)
        error = machine.approximation_error(rows, norm=args.norm)
    if args.json:
        print_json(asdict(error))
    else:
        print(error)
        print(f"of the kernel matrix of {rows.shape[0]:,} rows is missed (0: none of it, 1: all of it)")
    return 0


def _check_directions(machine: Any, path: str) -> None:
    """Raise if the rank was cut and the file lacks the statistics that the error needs."""
    from nystrom.models.values import LeftOut

    cut = machine._cuts_map and machine.n_components is not None
    if cut and isinstance(machine.map_.projection, LeftOut):
        raise ValueError(
            f"{path} holds only what predictions need, and the error takes its features cut to rank "
            f"{machine.n_components_}; fit with --full to keep them."
        )
