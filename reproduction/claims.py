"""The paper's checkable sentences, each a named check on the rows: held, not held, or not testable here."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Literal

from reproduction.catalogue import CATALOGUE, Experiment
from reproduction.records import Row
from reproduction.summary import Summary

Status = Literal["held", "not held", "not testable here"]


@dataclass(frozen=True)
class Verdict:
    """The verdict of the rows on one claim."""

    status: Status
    measured: str
    stand_in: str = ""


@dataclass(frozen=True)
class Claim:
    """One sentence of the paper.

    Attributes
    ----------
    name
        Unique, for tests and tables.
    experiment
        The figure that the sentence describes.
    sentence
        What the paper says, shortened.
    study
        The study whose rows decide the claim; empty for claims about small matrices.
    check
        A function from the study's rows to the verdict; raises :class:`UntestableError` if rows are missing.
    """

    name: str
    experiment: str
    sentence: str
    study: str
    check: Callable[[Summary], Verdict]


class UntestableError(Exception):
    """Rows that a check needs are missing; the message says which."""


@dataclass(frozen=True)
class Checked:
    """A claim with its verdict."""

    claim: Claim
    verdict: Verdict


def verdict(holds: bool, measured: str) -> Verdict:
    """Return the verdict of a check that could be made."""
    return Verdict("held" if holds else "not held", measured)


def mean(summary: Summary, method: str, m: int, r: int) -> float:
    """Return the mean error of a method at one size."""
    point = summary.at(method, m, r)
    if point is None:
        raise UntestableError(f"no rows of {method} at m = {m}, r = {r}")
    return point.mean


def best(summary: Summary, r: int) -> float:
    """Return the error of the best rank-r approximation."""
    found = summary.best(r)
    if found is None:
        raise UntestableError(f"no SVD at r = {r}")
    return found


def sizes(summary: Summary, *methods: str) -> list[tuple[int, int]]:
    """Return the sizes at which all these methods have rows."""
    found = [(m, r) for m, r in sorted(set(summary.study.sizes)) if all(summary.at(method, m, r) for method in methods)]
    if not found:
        raise UntestableError(f"no size has rows of all of {', '.join(methods)}")
    return found


def check_all(
    claims: Iterable[Claim], rows: Iterable[Row], experiments: Iterable[Experiment] = CATALOGUE
) -> list[Checked]:
    """Check every claim of the given experiments against the rows."""
    kept = list(rows)
    known = {experiment.key: experiment for experiment in experiments}
    checked = []
    for claim in claims:
        experiment = known.get(claim.experiment)
        if experiment is not None:
            checked.append(Checked(claim, _check(claim, experiment, kept)))
    return checked


def _check(claim: Claim, experiment: Experiment, rows: list[Row]) -> Verdict:
    if not claim.study:
        return claim.check(None)  # type: ignore[arg-type]
    study = next(study for study in experiment.studies if study.name == claim.study)
    summary = Summary(rows, experiment.key, study)
    if not summary:
        names = study.dataset if study.stand_in is None else f"{study.dataset} (or its stand-in {study.stand_in})"
        return Verdict("not testable here", f"no rows: the data set {names} was missing, or was not run")
    try:
        found = claim.check(summary)
    except UntestableError as reason:
        found = Verdict("not testable here", str(reason))
    return replace(found, stand_in=summary.dataset if summary.stand_in else "")
