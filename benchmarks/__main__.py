"""Run the contests: ``python -m benchmarks [suite …] [--repeat N] [--check | --store]``.

``--store`` also writes the tables of the pages, and so does ``pages`` alone. ``readme`` runs and stores the suites of
the README's table and picture.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from pathlib import Path

import numpy as np
import scipy
import sklearn

from benchmarks import device, intervals, picture, records, scaling, views
from benchmarks.suites import SUITES
from nystrom import __version__
from nystrom.engine.threads import resolve_n_jobs
from nystrom.loops import instruction_set

ROOT = Path(__file__).parents[1]
# Suites that print their own tables and return their records.
ALONE = {"scaling": scaling.main, "intervals": intervals.main}


def machine() -> dict[str, str | int | bool]:
    """Return the versions and the machine that the figures depend on."""
    return {
        "numpy": np.__version__,
        "scipy": scipy.__version__,
        "scikit-learn": sklearn.__version__,
        "python": platform.python_version(),
        "processor": platform.machine(),
        "cores": resolve_n_jobs(None),
        "loops": instruction_set() or "NumPy",
    }


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "suites",
        nargs="*",
        help=f"any of {', '.join([*SUITES, *ALONE])}; all but the last two by default; readme; pages",
    )
    parser.add_argument("--repeat", type=int, default=3, help="rounds; the best of each contestant counts")
    parser.add_argument("--output", type=Path, default=Path("benchmark-results"), help="folder for the results")
    parser.add_argument("--device", default="cuda", help="device of torch, for the suite 'device'")
    parser.add_argument("--rows", type=int, default=50_000, help="rows of the suite 'device'")
    parser.add_argument("--quick", action="store_true", help="a tenth of the rows and landmarks of the suite 'device'")
    stored = parser.add_mutually_exclusive_group()
    stored.add_argument("--check", action="store_true", help="compare the ratios with those stored, and fail if slower")
    stored.add_argument("--store", action="store_true", help="append the run to benchmarks/results/")
    args = parser.parse_args()
    if args.suites == ["pages"]:
        write_pages()
        return
    if args.suites == ["readme"]:
        args.suites, args.store = list(views.README_SUITES), not args.check
    if args.suites == ["device"]:
        print(json.dumps(machine()), "load", os.getloadavg())
        found = device.main(args.device, args.rows, args.repeat, quick=args.quick)
        if args.store:
            records.store("device", found, machine(), __version__)
        return
    chosen = args.suites or [name for name in SUITES if not args.check or records.has_ratios(name)]
    unknown = sorted(set(chosen) - {*SUITES, *ALONE})
    if unknown:
        parser.error(f"no suite {unknown[0]!r}; there are {', '.join([*SUITES, *ALONE])}")
    print(json.dumps(machine()), "load", os.getloadavg())
    args.output.mkdir(parents=True, exist_ok=True)
    slower: list[str] = []
    for name in chosen:
        if name in ALONE:
            found = ALONE[name](args.repeat, args.output)
            if args.store:
                records.store(name, found, machine(), __version__)
            continue
        results = list(SUITES[name](args.repeat))
        found = records.describe(results)
        print(records.table(found, origin=False), flush=True)
        (args.output / f"{name}.json").write_text(json.dumps({"machine": machine(), "results": found}, indent=1) + "\n")
        if args.store:
            records.store(name, found, machine(), __version__)
        elif args.check:
            slower += records.check(name, results)
    if args.store:
        write_pages()
    if slower:
        sys.exit("Slower than stored:\n" + "\n".join(slower))


def write_pages() -> None:
    """Write the tables and the pictures of all pages from the stored records."""
    records.write_pages([*sorted(ROOT.glob("docs/*.md")), ROOT / "README.md"], views.VIEWS)
    for name, draw in picture.PICTURES.items():
        draw(ROOT / "docs" / "images" / name)


if __name__ == "__main__":
    main()
