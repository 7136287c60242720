"""Kinds of checks: each returns a function from the rows of a study to a verdict."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

from reproduction.claims import UntestableError, Verdict, best, mean, sizes, verdict
from reproduction.small_matrices import COUNTEREXAMPLE, TOY_KERNEL, compare, dual_gap, trace_norm_never_breached
from reproduction.summary import Stage, Summary

_CLOSE = 0.05  # "reaches", "roughly the same", "almost": within 5 %
_SAME = 1e-3  # "exactly the same": rounding of float32 and of the literal algorithms

Check = Callable[[Summary], Verdict]


def beats(winner: str, *losers: str, share: float = 1.0) -> Check:
    """Every mean error of the winner is below those of the losers, or below a share of them."""

    def check(summary: Summary) -> Verdict:
        ratios = {}
        for m, r in sizes(summary, winner, *losers):
            lowest = min(mean(summary, loser, m, r) for loser in losers)
            ratios[m, r] = mean(summary, winner, m, r) / lowest
            possible = summary.best(r)
            if share < 1 and possible is not None and possible >= share * lowest:
                raise UntestableError(
                    f"not even the SVD is below {share:.0%} of the best of {' and '.join(losers)}: at m = {m} it is at "
                    f"{possible / lowest:.0%} (errors {possible:.3g} and {lowest:.3g}), {winner} at {ratios[m, r]:.0%}"
                )
        worst = max(ratios, key=ratios.__getitem__)
        text = (
            f"error is {min(ratios.values()):.0%} to {max(ratios.values()):.0%} of the best of "
            f"{' and '.join(losers)} (closest at m = {worst[0]}, r = {worst[1]})"
        )
        if share < 1:
            text += f"; held means below {share:.0%}"
        return verdict(ratios[worst] < share, text)

    return check


def close(method: str, other: str, tolerance: float = _CLOSE) -> Check:
    """The mean errors differ by at most the tolerance, at every size; ``other`` may be the SVD."""

    def check(summary: Summary) -> Verdict:
        pair = (method,) if other == "svd" else (method, other)
        gaps = {}
        for m, r in sizes(summary, *pair):
            reference = best(summary, r) if other == "svd" else mean(summary, other, m, r)
            gaps[m, r] = mean(summary, method, m, r) / reference - 1
        worst = max(gaps, key=gaps.__getitem__)
        text = (
            f"{min(gaps.values()):+.1%} to {max(gaps.values()):+.1%} against {other} "
            f"(worst at m = {worst[0]}, r = {worst[1]}); held means at most {tolerance:.0%} above"
        )
        return verdict(gaps[worst] <= tolerance, text)

    return check


def reaches_best(method: str, m: int, r: int, tolerance: float = _CLOSE) -> Check:
    def check(summary: Summary) -> Verdict:
        gap = mean(summary, method, m, r) / best(summary, r) - 1
        return verdict(gap <= tolerance, f"{gap:+.1%} above the SVD at m = {m}; held means at most {tolerance:.1%}")

    return check


def same_at_rank(r: int) -> Check:
    def check(summary: Summary) -> Verdict:
        gap = abs(mean(summary, "standard", r, r) - mean(summary, "optimal", r, r)) / mean(summary, "optimal", r, r)
        return verdict(gap < _SAME, f"mean errors differ by {gap:.1e} of their value")

    return check


def improves(method: str, first: int, last: int, r: int) -> Check:
    def check(summary: Summary) -> Verdict:
        begin, end = mean(summary, method, first, r), mean(summary, method, last, r)
        return verdict(end < begin, f"{begin:.4f} at m = {first}, {end:.4f} at m = {last}; SVD {best(summary, r):.4f}")

    return check


def never_rises(method: str, slack: float = 0.005) -> Check:
    def check(summary: Summary) -> Verdict:
        means = [mean(summary, method, m, r) for m, r in sizes(summary, method)]
        rise = max((after / before - 1 for before, after in pairwise(means)), default=0.0)
        return verdict(rise <= slack, f"largest rise of the mean from one m to the next: {rise:+.2%}")

    return check


def rises_somewhere(method: str) -> Check:
    def check(summary: Summary) -> Verdict:
        found = [(m, mean(summary, method, m, r)) for m, r in sizes(summary, method)]
        rises = [(a, b) for a, b in pairwise(found) if b[1] > a[1]]
        if not rises:
            return verdict(False, "the mean falls from every m to the next")
        (m0, e0), (m1, e1) = max(rises, key=lambda pair: pair[1][1] - pair[0][1])
        return verdict(True, f"from {e0:.4f} at m = {m0} up to {e1:.4f} at m = {m1}")

    return check


def better_than(method: str, m: int, other: str, other_m: int, r: int) -> Check:
    def check(summary: Summary) -> Verdict:
        one, two = mean(summary, method, m, r), mean(summary, other, other_m, r)
        return verdict(one < two, f"{one:.4f} at m = {m} against {two:.4f} at m = {other_m}")

    return check


def separable(summary: Summary) -> Verdict:
    def score(method: str) -> float:
        values = [row["separability"] for row in summary.rows if row["method"] == method and "separability" in row]
        if not values:
            raise UntestableError(f"no maps of {method}")
        return float(sum(values) / len(values))

    good, poor = score("optimal"), score("standard")
    text = f"the best line gets {good:.1%} of the points right via QR, {poor:.1%} by the standard method (mean)"
    return verdict(good > 0.999 and poor < 0.99, text)


def twice_the_time(prefix: str) -> Check:
    def check(summary: Summary) -> Verdict:
        pair = (f"{prefix}optimal", f"{prefix}standard")
        ratios = []
        for m, r in sizes(summary, *pair):
            times = [summary.at(key, m, r).seconds("algorithm") for key in pair]  # type: ignore[union-attr]
            ratios.append(times[0] / times[1])
        text = f"time ratio {min(ratios):.2f} to {max(ratios):.2f}; held means at most 2.5"
        return verdict(max(ratios) <= 2.5, text)

    return check


def equal_time(left: tuple[str, int], right: tuple[str, int], r: int, stage: Stage) -> Check:
    """At these two sizes the first takes at most 1.25 times as long, and is more accurate."""

    def check(summary: Summary) -> Verdict:
        one, two = summary.at(*left, r), summary.at(*right, r)
        if one is None or two is None:
            raise UntestableError(f"no rows at m = {left[1]} and m = {right[1]}")
        ratio = one.seconds(stage) / two.seconds(stage)
        text = (
            f"m = {left[1]} takes {ratio:.2f} times as long as the other's m = {right[1]}, with error "
            f"{one.mean:.4f} ± {one.std:.4f} against {two.mean:.4f} ± {two.std:.4f}"
        )
        return verdict(ratio <= 1.25 and one.mean < two.mean, text)

    return check


def faster(method: str, other: str, factor: float, stage: Stage) -> Check:
    def check(summary: Summary) -> Verdict:
        ratios = {}
        for m, r in sizes(summary, method, other):
            times = [summary.at(key, m, r).seconds(stage) for key in (other, method)]  # type: ignore[union-attr]
            ratios[m, r] = times[0] / times[1]
        worst = min(ratios, key=ratios.__getitem__)
        what = "choosing landmarks" if stage == "landmarks" else "in total"
        text = (
            f"{min(ratios.values()):.0f} to {max(ratios.values()):.0f} times faster {what} "
            f"(least at m = {worst[0]}); held means at least {factor:.0f} at every size"
        )
        return verdict(ratios[worst] >= factor, text)

    return check


def falls_with_gamma(summary: Summary) -> Verdict:
    keys = ("sketched-0.01", "sketched-0.02", "sketched-0.05", "sketched-0.2")
    common = sizes(summary, *keys)
    means = [sum(mean(summary, key, m, r) for m, r in common) / len(common) for key in keys]
    text = "mean over sizes at γ = 0.01, 0.02, 0.05, 0.2: " + ", ".join(f"{value:.4f}" for value in means)
    return verdict(all(b < a for a, b in pairwise(means)), text)


def two_passes(method: str) -> Check:
    def check(summary: Summary) -> Verdict:
        counts = {row["passes"] for row in summary.rows if row["method"] == method}
        if not counts:
            raise UntestableError(f"no rows of {method}")
        return verdict(max(counts) <= 2, f"passes counted over the rows: {', '.join(map(str, sorted(counts)))}")

    return check


def toy(_: Summary) -> Verdict:
    pair = compare(TOY_KERNEL, [0, 1], 1)["fro"]
    text = f"standard {pair.standard:.5f}, via QR {pair.optimal:.5f}, best possible {pair.svd:.5f}"
    return verdict(pair.standard >= 0.99 and abs(pair.optimal - pair.svd) < 1e-12 and pair.optimal < 0.0101, text)


def always(norm: str) -> Check:
    def check(_: Summary) -> Verdict:
        pair = compare(COUNTEREXAMPLE @ COUNTEREXAMPLE.T, [0, 1], 1)[norm]
        text = (
            f"counterexample: rows (2,0,0), (0,1,0), (3,0,5), (0,4,0), linear kernel, landmarks the first two, r = 1: "
            f"relative error {pair.optimal:.4f} via QR, {pair.standard:.4f} by the standard method"
        )
        return verdict(pair.optimal <= pair.standard, text)

    return check


def trace(_: Summary) -> Verdict:
    return verdict(trace_norm_never_breached(), "never breached on 200 random 5 × 5 kernels (what does hold always)")


def formula(_: Summary) -> Verdict:
    shape, gap = dual_gap()
    text = f"as printed it is a {shape[0]} × {shape[1]} matrix: y is missing. Times y it is right to {gap:.0e}"
    return verdict(False, text)


def better_above_rank(summary: Summary) -> Verdict:
    ratios = [
        mean(summary, "optimal", m, r) / mean(summary, "standard", m, r)
        for m, r in sizes(summary, "optimal", "standard")
        if m > r
    ]
    if not ratios:
        raise UntestableError("no size with m > r")
    return verdict(max(ratios) < 1, f"error is {min(ratios):.0%} to {max(ratios):.0%} of the standard method's")


def not_run(_: Summary) -> Verdict:
    return Verdict("not testable here", "k-means from 20 starts is in no figure, so it was not run")
