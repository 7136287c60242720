"""The catalogue holds the paper's parameters."""

import pytest

from nystrom.datasets import info
from nystrom.sketch import sketch_dimension
from reproduction.catalogue import CATALOGUE, RIDGE, TRIALS, quick, select

STUDIES = {(e.key, s.name): s for e in CATALOGUE for s in e.studies}


def test_every_figure_of_the_paper_is_there_once():
    keys = [experiment.key for experiment in CATALOGUE if not experiment.ours]
    assert keys == ["toy", *(f"fig{i}" for i in range(1, 9))]
    assert TRIALS == 50
    assert RIDGE == 1 / 4


@pytest.mark.parametrize(
    ("key", "columns", "expected"),
    [
        (("fig3", "dna"), 180, {2, 4, 9, 36}),
        (("fig3", "protein"), 357, {4, 7, 18, 71}),
        (("fig5", "mnist"), 784, {8}),
        (("fig6", "epsilon"), 2000, {10}),
        (("fig7", "cpusmall-m"), 48, {10}),
        (("fig8", "e2006"), 150360, {10}),
    ],
)
def test_the_columns_of_the_sketches_are_those_the_paper_prints(key, columns, expected):
    gammas = [method.compression for method in STUDIES[key].methods if method.compression]
    assert {sketch_dimension(columns, compression=gamma) for gamma in gammas} == expected


@pytest.mark.parametrize(
    ("key", "sizes"),
    [
        (("fig1", "rings"), {(2, 2), (4, 2), (40, 2)}),
        (("fig2", "satimage-r2"), {(2, 2), (4, 2), (8, 2)}),
        (("fig2", "satimage-r5"), {(5, 5), (10, 5), (30, 5)}),
        (("fig3", "dna"), {(3, 3), (30, 3)}),
        (("fig4", "protein"), {(2, 2), (30, 30)}),
        (("fig5", "mnist"), {(3, 3), (30, 3)}),
        (("fig6", "epsilon"), {(2, 2), (30, 30)}),
        (("fig7", "cpusmall-m"), {(82, 82), (164, 82)}),
        (("fig7", "cpusmall-r"), {(82, 41), (492, 246)}),
        (("fig8", "e2006"), {(161, 161), (644, 161), (966, 161)}),
    ],
)
def test_the_sizes_named_in_the_text_are_run(key, sizes):
    assert sizes <= set(STUDIES[key].sizes)


def test_panels_name_studies_and_methods_that_exist():
    for experiment in CATALOGUE:
        names = {study.name: {method.key for method in study.methods} for study in experiment.studies}
        for panel in experiment.panels:
            assert set(panel.methods) | set(panel.equal_time or ()) <= names[panel.study]


def test_stand_ins_are_registered_for_the_set_they_replace():
    for study in STUDIES.values():
        info(study.dataset)
        if study.stand_in:
            assert info(study.stand_in).stand_in_for == study.dataset


def test_quick_keeps_every_method_and_the_extreme_sizes_with_few_rows():
    for experiment in CATALOGUE:
        for study, small in zip(experiment.studies, quick(experiment).studies, strict=True):
            assert small.methods == study.methods
            assert 0 < small.first <= 5000
            assert 3 <= len(small.sizes) <= 4


def test_an_unknown_figure_is_named():
    with pytest.raises(ValueError, match=r"figure must be among toy, fig1.*got 'fig9'"):
        select(("fig9",))
