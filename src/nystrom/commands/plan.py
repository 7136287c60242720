"""``nystrom plan``: predict the cost of a fit."""

from __future__ import annotations

import argparse
import time
from dataclasses import asdict, replace
from itertools import islice
from typing import TYPE_CHECKING

from nystrom.commands.data_in import Source, add_table_options, make_encoder, open_source, open_table_of
from nystrom.commands.data_out import print_json
from nystrom.commands.options import Subparsers, parse_count, parse_size

if TYPE_CHECKING:
    from nystrom.rows.base import RowBlocks

# Batches of a table that show how its columns are encoded.
_BATCHES = 4


def add_parser(subparsers: Subparsers) -> argparse.ArgumentParser:
    """Add the ``plan`` subcommand."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "plan",
        help="predict passes, bytes, memory and time of a fit, here or on a cluster",
        description="Time the passes of a fit on a few synthetic blocks (some seconds), and predict what a fit of the "
        "given size takes: here, or on a Dask cluster whose workers are like this machine.",
        epilog="example: nystrom plan --rows 1e9 --columns 1000 --landmarks 500 --workers 50 --worker-memory 16GB",
    )
    parser.add_argument("data", nargs="?", help="a table or matrix in a file, whose size and speed are then known")
    parser.add_argument("--target", metavar="COL", help="the column to learn, in a table")
    parser.add_argument("--rows", type=parse_count, help="n; 1e9 is understood")
    parser.add_argument("--columns", type=parse_count, help="p")
    parser.add_argument("--landmarks", type=parse_count, required=True, help="m")
    parser.add_argument("--nnz", type=parse_count, help="entries that are not zero, if the rows are sparse")
    parser.add_argument("--dtype", choices=["float32", "float64"], default="float64")
    parser.add_argument("--block-rows", type=parse_count, help="rows of a block, or of a chunk of a Dask array")
    parser.add_argument("--workers", type=parse_count, help="worker processes of a cluster; without it the fit is here")
    parser.add_argument("--threads", type=parse_count, help="threads of each worker (1), or of this process (all)")
    parser.add_argument("--worker-memory", type=parse_size, help="such as 16GB")
    parser.add_argument("--read-bandwidth", type=parse_size, help="bytes per second of each process, such as 500MB")
    parser.add_argument(
        "--network-bandwidth", type=parse_size, default=1e9, help="bytes per second of each worker (1GB)"
    )
    parser.add_argument(
        "--solver", choices=["factor", "cg", "auto"], default="auto", help="of KernelRidge (the cheapest, by default)"
    )
    add_table_options(parser)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=run)
    return parser


def run(arguments: argparse.Namespace) -> int:
    """Print the plan."""
    from nystrom.planning import plan, plan_file, plan_rows

    options = {
        name: value
        for name in ("block_rows", "workers", "threads", "worker_memory", "read_bandwidth")
        if (value := getattr(arguments, name)) is not None
    }
    options |= {"network_bandwidth": arguments.network_bandwidth, "solver": arguments.solver}
    if arguments.data is not None:
        with open_source(arguments.data) as source:
            if source.is_table:
                rows, opening = _encoded(arguments, source)
                found = plan_rows(rows, arguments.landmarks, opening=opening, passes=2, **options)
            else:
                found = plan_file(source.path, arguments.landmarks, **options)
    elif arguments.rows is None or arguments.columns is None:
        raise ValueError("give a file of rows, or both --rows and --columns.")
    else:
        shape = (arguments.rows, arguments.columns, arguments.landmarks)
        found = plan(*shape, nnz=arguments.nnz, dtype=arguments.dtype, **options)
    if arguments.json:
        print_json({**asdict(found), "seconds": found.seconds, "n_passes": found.n_passes})
    else:
        print(found)
    return 0


def _encoded(args: argparse.Namespace, source: Source) -> tuple[RowBlocks, float]:
    """Return the rows of a table, encoded as its first batches say, and the seconds that counting them took."""
    from nystrom.exceptions import TableWarning, silenced

    encoder = make_encoder(args)
    table = open_table_of(source, encoder)
    with silenced(TableWarning):
        encoder.fit(replace(table, read=lambda *given: islice(table.read(*given), _BATCHES)))
        began = time.perf_counter()
        rows: RowBlocks = encoder.rows(table)
    return rows, time.perf_counter() - began
