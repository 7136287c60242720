"""Tables of the pages that show only some records of a suite, or records of several."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import groupby

from benchmarks.records import Record, newest

# What a line of the README says, with what it compares; suite, start of the case, and start of our name and of theirs.
_README = (
    (
        *("features of mnist (60,000 × 784), 100 landmarks, rank 50", "scikit-learn `Nystroem`, rank 100"),
        *("features", "mnist, m=100", "nystrom auto", "scikit-learn uniform"),
    ),
    (
        *("features of mnist, 500 landmarks, rank 250", "scikit-learn `Nystroem`, rank 500"),
        *("features", "mnist, m=500", "nystrom auto", "scikit-learn uniform"),
    ),
    (
        *("features of sparse text (5,363 × 148,228), 100 landmarks, rank 50", "scikit-learn `Nystroem`, rank 100"),
        *("shapes", "rfc-tfidf", "nystrom auto", "scikit-learn uniform"),
    ),
    (
        *("features of 100,000 × 50 rows, 1,000 landmarks, rank 500", "scikit-learn `Nystroem`, rank 1,400"),
        *("equal_error", "100,000 × 50 float32, 1,000", "nystrom auto, 1000", "scikit-learn uniform, 1400"),
    ),
    (
        *("100 landmarks by k-means on mnist", "scikit-learn `KMeans`"),
        *("landmarks", "mnist, 100", "nystrom auto", "scikit-learn KMeans"),
    ),
    (
        *("kernel ridge, 100,000 × 20, 1,000 landmarks", "scikit-learn `Nystroem` + `Ridge`"),
        *("machines", "kernel ridge, 100,000", "nystrom KernelRidge", "scikit-learn Nystroem"),
    ),
    (
        *("exact kernel ridge, 20,000 × 5, within 1 GB", "a Cholesky factor of K"),
        *("exact", "20,000", "nystrom KernelRidge", "Cholesky"),
    ),
)
README_SUITES = tuple(dict.fromkeys(line[2] for line in _README))


def _cases(suite: str) -> Iterator[list[Record]]:
    for _, records in groupby(newest(suite), key=lambda record: record["case"]):
        yield list(records)


def readme() -> list[Record]:
    """Return the lines of the README's table."""
    found = []
    for what, peer, suite, case, our_name, their_name in _README:
        records = [record for record in newest(suite) if record["case"].startswith(case)]
        ours = next((record for record in records if record["contestant"].startswith(our_name)), None)
        theirs = next((record for record in records if record["contestant"].startswith(their_name)), None)
        if ours is None or theirs is None:
            raise ValueError(f"nothing is stored for {what!r}: run python -m benchmarks readme, with NYSTROM_DATA set")
        found.append(
            {
                "what": what,
                "compared with": peer,
                "time": float(f"{ours['seconds'] / theirs['seconds']:.2g}"),
                "error": theirs["error, ours ÷ theirs"],
                "version": ours["version"],
                "date": ours["date"],
            }
        )
    return found


def equal_error() -> list[Record]:
    """Return a line per case: our first contestant, and the one of theirs whose error is nearest to ours."""
    found = []
    for ours, *others in _cases("equal_error"):
        peers = [record for record in others if record["contestant"].startswith("scikit-learn")]
        nearest = min(peers, key=lambda record: abs(math.log(record["error, ours ÷ theirs"])))
        seconds = {"ours, seconds": ours["seconds"], "theirs, seconds": nearest["seconds"]}
        found.append({"ours": ours["contestant"], "theirs": nearest["contestant"], **nearest, **seconds})
    hidden = ("contestant", "seconds", "processor", "added MB", "error")
    return [
        {"case": record["case"], **{key: value for key, value in record.items() if key not in hidden}}
        for record in found
    ]


def loops() -> list[Record]:
    """Return a line per case: the seconds with the loops, and how many times as long it takes without each."""
    return [
        {
            "case": compiled["case"],
            "compiled, seconds": compiled["seconds"],
            **{f"{r['contestant']} ÷ compiled": round(r["seconds"] / compiled["seconds"], 2) for r in others},
            "version": compiled["version"],
            "date": compiled["date"],
        }
        for compiled, *others in _cases("loops")
    ]


VIEWS = {"readme": readme, "equal_error": equal_error, "loops": loops}
