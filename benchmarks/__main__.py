"""Run the contests: ``python -m benchmarks [suite …] [--repeat N] [--check | --store] [--write PAGE]``."""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from dataclasses import asdict
from itertools import groupby
from pathlib import Path

import numpy as np
import scipy
import sklearn

from benchmarks import ratios, scaling
from benchmarks.measure import Result
from benchmarks.suites import SUITES
from nystrom import __version__
from nystrom.engine.threads import resolve_n_jobs
from nystrom.loops import instruction_set


def table(results: list[Result]) -> str:
    """Return a Markdown table a case: each contestant's time, ratios to the first contestant's, memory and error."""
    lines = []
    for case, group in groupby(results, key=lambda result: result.case):
        rows = list(group)
        first = rows[0]
        lines += [
            f"\n**{case}**\n",
            "| contestant | seconds | processor | ours ÷ theirs, time | added MB | error | ours ÷ theirs, error |",
        ]
        lines.append("|---|---|---|---|---|---|---|")
        for row in rows:
            error = "" if row.error is None else f"{row.error:.4g}"
            ratio = f"{first.error / row.error:.2f}" if row.error and first.error is not None else ""
            name = f"{row.contestant} ({row.note})" if row.note else row.contestant
            lines.append(
                f"| {name} | {row.seconds:.3f} | {'' if row.processor is None else f'{row.processor:.3f}'} "
                f"| {first.seconds / row.seconds:.2f} | {row.added_mb:.0f} "
                f"| {error} | {ratio} |"
            )
    return "\n".join(lines)


def machine() -> dict[str, str | int | bool]:
    """Return what the figures depend on."""
    return {
        "nystrom": __version__,
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
        "suites", nargs="*", help=f"any of {', '.join([*SUITES, 'scaling'])}; all but scaling by default"
    )
    parser.add_argument("--repeat", type=int, default=5, help="rounds; the best of each contestant counts")
    parser.add_argument("--output", type=Path, default=Path("benchmark-results"), help="folder for the results")
    stored = parser.add_mutually_exclusive_group()
    stored.add_argument("--check", action="store_true", help="compare the ratios with those stored, and fail if slower")
    stored.add_argument("--store", action="store_true", help=f"store the ratios in {ratios.STORED.name}")
    parser.add_argument(
        "--write", type=Path, help="a page, such as docs/performance.md, whose tables are written again"
    )
    args = parser.parse_args()
    chosen = args.suites or list(SUITES)
    unknown = sorted(set(chosen) - {*SUITES, "scaling"})
    if unknown:
        parser.error(f"no suite {unknown[0]!r}; there are {', '.join([*SUITES, 'scaling'])}")
    print(json.dumps(machine()), "load", os.getloadavg())
    args.output.mkdir(parents=True, exist_ok=True)
    slower: list[str] = []
    for name in chosen:
        if name == "scaling":
            scaling.main(args.repeat, args.output)
            continue
        results = list(SUITES[name](args.repeat))
        print(table(results), flush=True)
        kept = {"machine": machine(), "results": [asdict(result) for result in results]}
        (args.output / f"{name}.json").write_text(json.dumps(kept, indent=1) + "\n")
        if args.write is not None:
            ratios.write(name, ratios.summary(results), args.write)
        if args.store:
            ratios.store(name, results, machine())
        elif args.check:
            slower += ratios.check(name, results)
    if slower:
        sys.exit("Slower than stored:\n" + "\n".join(slower))


if __name__ == "__main__":
    main()
