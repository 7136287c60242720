"""``nystrom data``: list the data sets that can be loaded, and download some."""

from __future__ import annotations

import argparse
from dataclasses import asdict

from nystrom.commands.data_out import print_json
from nystrom.commands.options import Subparsers
from nystrom.datasets.loader import DatasetInfo, data_homes, info, is_available, list_datasets, load


def add_parser(subparsers: Subparsers) -> argparse.ArgumentParser:
    """Add the ``data`` subcommand to an argparse collection of subcommands."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "data",
        help="list the data sets that can be loaded by name, or fetch some",
        description="Without a name, list every known set and whether its file is here; with names, "
        "fetch and check them. Files are looked for in the folders of the environment variable NYSTROM_DATA.",
    )
    parser.add_argument("name", nargs="*", help="sets to fetch, such as mnist")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=run)
    return parser


def run(arguments: argparse.Namespace) -> int:
    """Run the subcommand and return the exit code."""
    if arguments.name:
        found = {name: load(info(name).name)[0].shape for name in arguments.name}
        if arguments.json:
            print_json([{"name": name, "n": shape[0], "p": shape[1]} for name, shape in found.items()])
        for name, shape in () if arguments.json else found.items():
            print(f"{name}: {shape[0]} × {shape[1]}, ready")
        return 0
    if arguments.json:
        print_json([{**asdict(entry), "here": is_available(entry.name)} for entry in list_datasets()])
        return 0
    print("data home: " + ", ".join(map(str, data_homes())))
    for entry in list_datasets():
        print(_line(entry))
    return 0


def _line(entry: DatasetInfo) -> str:
    rows = "?" if entry.n is None else f"{entry.n:,}"
    here = "here" if is_available(entry.name) else "    "
    mark = f"stand-in for {entry.stand_in_for}; " if entry.stand_in else ""
    return f"{here}  {entry.name:<16} {rows:>12} × {entry.p:<9,} {entry.task:<15} {mark}{entry.note}".rstrip()
