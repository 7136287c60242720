"""``nystrom report``: one page on a saved model, for a browser."""

from __future__ import annotations

import argparse
import sys

from nystrom.commands.data_in import matrix_rows, open_source, open_table_of, split_model
from nystrom.commands.data_out import print_json
from nystrom.commands.options import Subparsers, check_output, parse_count


def add_parser(subparsers: Subparsers) -> argparse.ArgumentParser:
    """Add the ``report`` subcommand."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "report",
        help="write a page on a saved model: how good it is, why, and where it fails",
        description="Write one self-contained HTML page: scores beside a baseline, importances by column, dependence "
        "on the leading columns, confusion and calibration or errors and intervals, the score with fewer landmarks, "
        "and rows unlike those of the fit. Give rows that the model was not fitted to.",
        epilog="example: nystrom report houses.nystrom held-out.csv --out report.html --beside boosting",
    )
    parser.add_argument("model", metavar="MODEL", help="a model file")
    parser.add_argument("data", metavar="DATA", help="the file, or - for a table on standard input")
    parser.add_argument("--out", metavar="FILE", default="report.html", help="the page (default: report.html)")
    parser.add_argument("--target", metavar="COL", help="the target's column in a matrix; tables know theirs")
    parser.add_argument("--beside", choices=["boosting"], help="also refit, in folds, this machine and another")
    parser.add_argument(
        "--max-rows", metavar="N", type=parse_count, default=10_000, help="rows drawn (default: 10,000)"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=run)
    return parser


def run(args: argparse.Namespace) -> int:
    """Write the page."""
    from nystrom import load
    from nystrom.reporting import report

    if args.out == "-":
        raise ValueError("--out -: a report goes to a file, such as report.html.")
    check_output(args.out, (".html",), inputs=[args.model, args.data])
    model = load(args.model)
    encoder, machine = split_model(model)
    if not hasattr(machine, "score"):
        raise ValueError(f"{args.model} holds a {type(machine).__name__}, which has learned no target to report on.")
    with open_source(args.data) as source:
        X = matrix_rows(source, args.target) if encoder is None else open_table_of(source, encoder)
        report(model, X, out=args.out, beside=args.beside, max_rows=args.max_rows, verbose=sys.stderr.isatty())
    print_json({"saved": args.out}) if args.json else print(f"report in {args.out}", file=sys.stderr)
    return 0
