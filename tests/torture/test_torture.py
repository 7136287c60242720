"""Every combination of kernel, selector, factor, machine, container, dtype, scale and defect is right or refused."""

from __future__ import annotations

import os
import tempfile
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from torture.machines import MACHINES
from torture.registry import CONTAINERS, DEFECTS, DTYPES, FACTORS, KERNELS, SCALES, SELECTORS, Case
from torture.runner import run_case

# How many random cases `pytest -m slow tests/torture` tries.
MANY = int(os.environ.get("NYSTROM_TORTURE_CASES", "4000"))

cases = st.builds(
    Case,
    kernel=st.sampled_from(sorted(KERNELS)),
    selector=st.sampled_from(sorted(SELECTORS)),
    factor=st.sampled_from(FACTORS),
    machine=st.sampled_from(sorted(MACHINES)),
    container=st.sampled_from(sorted(CONTAINERS)),
    dtype=st.sampled_from(sorted(DTYPES)),
    scale=st.sampled_from(list(SCALES)),
    defect=st.sampled_from(list(DEFECTS)),
    n=st.integers(6, 80),
    p=st.integers(1, 6),
    m=st.integers(1, 25),
    seed=st.integers(0, 2**16),
)


def _try(case: Case) -> str:
    with tempfile.TemporaryDirectory() as folder:
        return run_case(case, Path(folder))


@settings(max_examples=250, suppress_health_check=list(HealthCheck))
@given(case=cases)
def test_a_sample_of_all_combinations_is_right_or_refused_with_a_reason(case: Case) -> None:
    _try(case)


# Cases that failed once.
FOUND = [
    Case(
        kernel="linear",
        selector="uniform",
        machine="GaussianProcessRegressor",
        container="Fortran",
        dtype="object",
        defect="clusters far apart",
        n=73,
        p=3,
        m=3,
        seed=3,
    ),
    Case(
        kernel="gaussian-narrow",
        machine="GaussianProcessRegressor",
        container="coo",
        scale="e+150",
        defect="clusters far apart",
        n=6,
        p=1,
        m=1,
        seed=0,
    ),
    Case(
        kernel="linear",
        machine="KernelRidge, intercept",
        container="Fortran",
        scale="e+150",
        defect="huge target",
        n=6,
        p=3,
        m=2,
        seed=1,
    ),
    Case(
        kernel="linear",
        selector="leverage",
        machine="GaussianProcessRegressor",
        container="coo",
        dtype="float16",
        n=34,
        p=1,
        m=1,
        seed=1,
    ),
    Case(kernel="sum", machine="GaussianProcessRegressor", container="coo", scale="offset-6", n=6, p=1, m=3, seed=3),
    Case(
        selector="column-norm",
        machine="GaussianProcessRegressor",
        container="coo",
        scale="offset-6",
        n=6,
        p=1,
        m=2,
        seed=3,
    ),
    Case(
        kernel="callable",
        selector="kmeans",
        machine="GaussianProcessRegressor",
        container="coo",
        dtype="float32",
        scale="offset-6",
        n=50,
        p=2,
        m=17,
        seed=0,
    ),
]


@pytest.mark.parametrize("case", FOUND)
def test_cases_that_failed_once_are_right_or_refused_with_a_reason(case: Case) -> None:
    _try(case)


AXES = {
    "kernel": KERNELS,
    "selector": SELECTORS,
    "factor": FACTORS,
    "machine": MACHINES,
    "container": CONTAINERS,
    "dtype": DTYPES,
    "scale": SCALES,
    "defect": DEFECTS,
}


@pytest.mark.parametrize(("axis", "value"), [(axis, value) for axis, values in AXES.items() for value in values])
def test_each_value_of_each_axis_alone_is_right_or_refused_with_a_reason(axis: str, value: str) -> None:
    for machine in ("Nystroem", "KernelRidge, intercept"):
        _try(Case(**{"machine": machine, axis: value}))


@pytest.mark.slow
@settings(max_examples=MANY, suppress_health_check=list(HealthCheck), derandomize=False, database=None)
@given(case=cases)
def test_thousands_of_combinations_are_right_or_refused_with_a_reason(case: Case) -> None:
    _try(case)


@pytest.mark.slow
@pytest.mark.parametrize("machine", sorted(MACHINES))
def test_every_pair_of_defect_and_scale_is_right_or_refused_for_every_machine(machine: str) -> None:
    outcomes: Counter[str] = Counter()
    for i, defect in enumerate(DEFECTS):
        for j, scale in enumerate(SCALES):
            kernel = sorted(KERNELS)[(i + j) % len(KERNELS)]
            case = Case(machine=machine, defect=defect, scale=scale, kernel=kernel, seed=i * 100 + j)
            try:
                outcomes[_try(case)] += 1
            except AssertionError as error:
                raise AssertionError(f"{case}: {error}") from error
    assert outcomes["right"] > outcomes["refused"] / 2
