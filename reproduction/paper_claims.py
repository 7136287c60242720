"""The checkable sentences of the paper, in its order, each with its check."""

from __future__ import annotations

from reproduction.checks import (
    always,
    beats,
    better_above_rank,
    better_than,
    close,
    equal_time,
    falls_with_gamma,
    faster,
    formula,
    improves,
    never_rises,
    not_run,
    reaches_best,
    rises_somewhere,
    same_at_rank,
    separable,
    toy,
    trace,
    twice_the_time,
    two_passes,
)
from reproduction.claims import Claim


def _toy_and_rings() -> list[Claim]:
    return [
        Claim(
            "toy-errors", "toy", "Error 0.99 for the standard method, 0.01 via QR, which is the best rank 1.", "", toy
        ),
        Claim(
            "always-frobenius", "toy", "It is always true that via QR ≤ standard in Frobenius norm.", "", always("fro")
        ),
        Claim("always-spectral", "toy", "This is also true in the spectral norm.", "", always("spectral")),
        Claim("always-trace", "toy", "(Ours) In trace norm via QR ≤ standard, always.", "", trace),
        Claim("fig1-same", "fig1", "For m = r = 2 both are exactly the same.", "rings", same_at_rank(2)),
        Claim(
            "fig1-improves",
            "fig1",
            "As m grows the standard method improves slowly.",
            "rings",
            improves("standard", 2, 40, 2),
        ),
        Claim(
            "fig1-svd", "fig1", "Via QR reaches the SVD at m = 2r = 4.", "rings", reaches_best("optimal", 4, 2, 0.001)
        ),
        Claim(
            "fig1-forty",
            "fig1",
            "m = 4 via QR is better than the standard method's m = 40: ten times less memory.",
            "rings",
            better_than("optimal", 4, "standard", 40, 2),
        ),
        Claim(
            "fig1-separable",
            "fig1",
            "The map via QR is linearly separable, the standard one is not.",
            "rings",
            separable,
        ),
    ]


def _satimage(r: int, left: int, right: int) -> list[Claim]:
    study = f"satimage-r{r}"
    claims = [
        Claim(f"fig2-same-r{r}", "fig2", f"At m = r = {r} both have exactly the same error.", study, same_at_rank(r)),
        Claim(
            f"fig2-better-r{r}",
            "fig2",
            f"Via QR outperforms the standard method (m > r), r = {r}.",
            study,
            better_above_rank,
        ),
        Claim(
            f"fig2-svd-r{r}",
            "fig2",
            f"Via QR reaches the SVD at m = 2r = {2 * r}.",
            study,
            reaches_best("optimal", 2 * r, r),
        ),
        Claim(
            f"fig2-monotone-r{r}",
            "fig2",
            f"Via QR can only improve as m increases, r = {r}.",
            study,
            never_rises("optimal"),
        ),
        Claim(
            f"fig2-double-r{r}",
            "fig2",
            f"The run time grows by almost a factor of 2 (as written), r = {r}.",
            study,
            twice_the_time("written-"),
        ),
        Claim(
            f"fig2-double-ours-r{r}",
            "fig2",
            f"(Ours) The same for this library's algorithms, r = {r}.",
            study,
            twice_the_time(""),
        ),
        Claim(
            f"fig2-equal-time-r{r}",
            "fig2",
            f"m = {left} via QR takes the time of the standard m = {right} and is more accurate (as written).",
            study,
            equal_time(("written-optimal", left), ("written-standard", right), r, "algorithm"),
        ),
    ]
    if r == 2:
        rises = Claim(
            "fig2-rises",
            "fig2",
            "The standard method's error need not fall with m, r = 2.",
            "satimage-r2",
            rises_somewhere("standard"),
        )
        claims.insert(2, rises)
    return claims


def _small_set_along(name: str, figure: str, sweep: str) -> list[Claim]:
    return [
        Claim(
            f"{figure}-{name}-beats",
            figure,
            f"{name}: sketched (γ = 0.02) beats uniform and column norm at every {sweep}.",
            name,
            beats("sketched-0.02", "uniform", "column-norm"),
        ),
        Claim(
            f"{figure}-{name}-clustered",
            figure,
            f"{name}: clustered beats uniform and column norm at every {sweep}.",
            name,
            beats("clustered", "uniform", "column-norm"),
        ),
        Claim(f"{figure}-{name}-gamma", figure, f"{name}: the error falls as γ grows.", name, falls_with_gamma),
        Claim(
            f"{figure}-{name}-smallest",
            figure,
            f"{name}: γ = 0.01 is accurate already (near clustered).",
            name,
            close("sketched-0.01", "clustered", 0.1),
        ),
    ]


def _small_set(name: str) -> list[Claim]:
    return [
        *_small_set_along(name, "fig3", "m"),
        *_small_set_along(name, "fig4", "r"),
        Claim(
            f"fig3-{name}-svd",
            "fig3",
            f"{name}: sketched reaches the SVD at small m, such as m = r.",
            name,
            reaches_best("sketched-0.02", 3, 3),
        ),
        Claim(
            f"fig3-{name}-uniform",
            "fig3",
            f"{name}: uniform at m = 10r does not reach sketched at m = r.",
            name,
            better_than("sketched-0.02", 3, "uniform", 30, 3),
        ),
        Claim(
            f"fig4-{name}-svd",
            "fig4",
            f"{name}: clustered has roughly the SVD's accuracy at every r.",
            name,
            close("clustered", "svd", 0.1),
        ),
        Claim(
            f"fig4-{name}-svd-sketched",
            "fig4",
            f"{name}: sketched has roughly the SVD's accuracy at every r.",
            name,
            close("sketched-0.02", "svd", 0.1),
        ),
        Claim(
            f"fig3-{name}-passes",
            "fig3",
            f"{name}: Algorithm 3 needs two passes over the data.",
            name,
            two_passes("sketched-0.02"),
        ),
    ]


def _small_sets() -> list[Claim]:
    claims = [*_small_set("dna"), *_small_set("protein")]
    claims.append(
        Claim(
            "fig3-protein-better",
            "fig3",
            "protein: γ = 0.2 is slightly better than clustered.",
            "protein",
            beats("sketched-0.2", "clustered"),
        )
    )
    claims.append(
        Claim(
            "fig3-protein-starts",
            "fig3",
            "protein: that difference disappears with the best of 20 starts.",
            "protein",
            not_run,
        )
    )
    return claims


def _large_sets() -> list[Claim]:
    claims = []
    for name, gamma in (("mnist", "0.01"), ("epsilon", "0.005")):
        sketched = f"sketched-{gamma}"
        for figure, sweep in (("fig5", "m"), ("fig6", "r")):
            claims += [
                Claim(
                    f"{figure}-{name}-beats",
                    figure,
                    f"{name}: sketched outperforms uniform at every {sweep}.",
                    name,
                    beats(sketched, "uniform"),
                ),
                Claim(
                    f"{figure}-{name}-close",
                    figure,
                    f"{name}: almost the same accuracy as clustered at every {sweep}.",
                    name,
                    close(sketched, "clustered"),
                ),
                Claim(
                    f"{figure}-{name}-landmarks",
                    figure,
                    f"{name}: an order of magnitude faster than clustered (choosing landmarks).",
                    name,
                    faster(sketched, "clustered", 10, "landmarks"),
                ),
                Claim(
                    f"{figure}-{name}-total",
                    figure,
                    f"{name}: an order of magnitude faster than clustered (run time).",
                    name,
                    faster(sketched, "clustered", 10, "total"),
                ),
            ]
    claims.append(
        Claim(
            "fig5-epsilon-ten",
            "fig5",
            "epsilon: sketched at m = r outperforms uniform at m = 10r.",
            "epsilon",
            better_than("sketched-0.005", 3, "uniform", 30, 3),
        )
    )
    return claims


def _cpusmall() -> list[Claim]:
    claims = [Claim("ridge-formula", "fig7", "α̂ = λ⁻¹(I − L(LᵀL + λI)⁻¹Lᵀ).", "", formula)]
    for sweep in ("m", "r"):
        study = f"cpusmall-{sweep}"
        claims += [
            Claim(
                f"fig7-{sweep}-beats",
                "fig7",
                f"cpusmall: better than uniform and column norm at every {sweep}.",
                study,
                beats("sketched-0.2", "uniform", "column-norm"),
            ),
            Claim(
                f"fig7-{sweep}-clustered",
                "fig7",
                f"cpusmall: no significant difference to clustered, by {sweep}.",
                study,
                close("sketched-0.2", "clustered", 0.1),
            ),
        ]
    return [
        *claims,
        Claim(
            "fig7-svd",
            "fig7",
            "cpusmall: nearly as accurate as the SVD for just m = 2r.",
            "cpusmall-m",
            reaches_best("sketched-0.2", 164, 82, 0.1),
        ),
    ]


def _e2006() -> list[Claim]:
    sketched = "sketched-6.5e-05"
    return [
        Claim(
            "fig8-beats",
            "fig8",
            "E2006: more accurate than uniform and column norm at every m.",
            "e2006",
            beats(sketched, "uniform", "column-norm"),
        ),
        Claim(
            "fig8-much",
            "fig8",
            "E2006: much more accurate than both (less than half of their error).",
            "e2006",
            beats(sketched, "uniform", "column-norm", share=0.5),
        ),
        Claim(
            "fig8-landmarks",
            "fig8",
            "E2006: two orders of magnitude faster than clustered (choosing landmarks).",
            "e2006",
            faster(sketched, "clustered", 100, "landmarks"),
        ),
        Claim(
            "fig8-total",
            "fig8",
            "E2006: two orders of magnitude faster than clustered (run time).",
            "e2006",
            faster(sketched, "clustered", 100, "total"),
        ),
        Claim(
            "fig8-equal-time",
            "fig8",
            "E2006: m = 644 takes the time of uniform's m = 966 and is more accurate.",
            "e2006",
            equal_time((sketched, 644), ("uniform", 966), 161, "total"),
        ),
        Claim(
            "fig8-passes", "fig8", "E2006: Algorithm 3 needs two passes over the data.", "e2006", two_passes(sketched)
        ),
    ]


CLAIMS: tuple[Claim, ...] = (
    *_toy_and_rings(),
    *_satimage(2, 4, 8),
    *_satimage(5, 10, 30),
    *_small_sets(),
    *_large_sets(),
    *_cpusmall(),
    *_e2006(),
)
