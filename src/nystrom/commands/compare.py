"""``nystrom compare``: compare selectors and numbers of landmarks on the user's own rows."""

from __future__ import annotations

import argparse
import dataclasses
from typing import Any

from nystrom.commands.data_in import (
    Source,
    add_table_options,
    given_table_options,
    make_encoder,
    matrix_rows,
    open_source,
    open_table_of,
)
from nystrom.commands.data_out import print_json
from nystrom.commands.options import Subparsers, parse_count, parse_names, parse_number_or_word
from nystrom.commands.terminal import print_table


def add_parser(subparsers: Subparsers) -> argparse.ArgumentParser:
    """Add the ``compare`` subcommand."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "compare",
        help="compare landmark selectors and sizes on a data file, and recommend one",
        description="Fit the rows of a data file with several selectors and numbers of landmarks: error with its "
        "interval, time and memory. With --target also the fit that 'nystrom fit' makes by default, learned metrics, "
        "and more landmarks while they help, all judged by the score on held-out rows. Then recommend one.",
        epilog="example: nystrom compare houses.csv --target price --picture houses.png",
    )
    parser.add_argument("data", metavar="DATA", help="the file, or - for a table on standard input")
    parser.add_argument("--target", metavar="COL", help="a column to learn: its name, or its number in a matrix")
    parser.add_argument("--selectors", type=parse_names, metavar="NAMES", help="such as auto,uniform,rpcholesky")
    parser.add_argument("--sizes", type=_parse_sizes, metavar="SIZES", help="numbers of landmarks, such as 50,100,200")
    parser.add_argument("--metrics", type=parse_names, metavar="NAMES", help="to learn: auto,diagonal,full")
    parser.add_argument("--kernel", default="gaussian", help="(default: %(default)s)")
    parser.add_argument("--gamma", type=parse_number_or_word, default="scale", help="bandwidth (default: %(default)s)")
    parser.add_argument("--most-rows", type=parse_count, metavar="N", help="rows to work with at most (100000)")
    add_table_options(parser)
    parser.add_argument("--picture", metavar="FILE", help="write errors, and scores, as .png, .svg or .pdf")
    parser.add_argument("--max-time", default="60s", metavar="TIME", help="start no fit after this time (default: 60s)")
    parser.add_argument("--quiet", action="store_true", help="show no progress")
    parser.add_argument("--n-jobs", type=int, metavar="N", help="threads (default: all cores)")
    parser.add_argument("--seed", type=int, default=0, help="seed of all random choices (default: 0)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=run)
    return parser


def run(args: argparse.Namespace) -> int:
    """Compare, and print the table with a recommendation."""
    from nystrom.comparison import compare
    from nystrom.plotting import check_picture_path, new_figure, save_figure

    if args.picture is not None:
        check_picture_path(args.picture)
    names = ("selectors", "sizes", "metrics", "most_rows")
    given = {name: getattr(args, name) for name in names if getattr(args, name)}
    with open_source(args.data) as source:
        found = compare(
            _rows(args, source),
            kernel=args.kernel,
            gamma=None if args.gamma == "none" else args.gamma,
            n_jobs=args.n_jobs,
            max_time=float(args.max_time) if args.max_time.isdigit() else args.max_time,
            verbose=not args.quiet,
            random_state=args.seed,
            **given,
        )
    if args.picture is not None:
        figure, axes = new_figure(5.5 * (1 + bool(found.score_name)), 4, 1 + bool(found.score_name))
        for score, ax in enumerate(axes):
            found.plot(score=bool(score), ax=ax)
        save_figure(figure, args.picture)
    command = found.command(args.data, args.target, given_table_options(args))
    if args.json:
        print_json({**dataclasses.asdict(found), "advice": found.advice, "python": found.python, "command": command})
        return 0
    print_table(found.columns, found.cells, title=f"{found.n_rows:,} rows of {args.data}")
    print(f"{found.advice}\n  {command}\n  {found.python}")
    if args.picture is not None:
        print(f"picture: {args.picture}")
    return 0


def _rows(args: argparse.Namespace, source: Source) -> Any:
    if not source.is_table:
        return matrix_rows(source, args.target)
    encoder = make_encoder(args)
    table = open_table_of(source, encoder)
    return encoder.fit(table).rows(table)


def _parse_sizes(text: str) -> list[int]:
    try:
        return [int(parse_count(part)) for part in text.split(",")]
    except argparse.ArgumentTypeError:
        raise
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of numbers such as 50,100,200") from error
