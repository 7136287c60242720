"""One way in for targets and weights: what rows hold themselves is checked as what is given beside them."""

import numpy as np
import pandas as pd
import pytest
from sklearn.pipeline import make_pipeline

from nystrom import GaussianProcessRegressor, KernelRidge, KernelRidgeClassifier, KernelSVR, compare, open_rows
from nystrom.exceptions import DataFileError
from nystrom.explanation import permutation_importance
from nystrom.preprocessing import TableEncoder
from nystrom.rows import as_blocks
from nystrom.rows.base import TakenRows
from nystrom.rows.validation import check_target

X = np.random.default_rng(0).normal(size=(50, 3))
Y = X[:, 0]
W = np.where(np.arange(50) < 25, 5.0, 1.0)
TEXT = np.where(Y > 0, "big", "small")


def masked(values):
    return np.ma.masked_array(values, np.arange(50) == 7)


@pytest.mark.parametrize("machine", [KernelRidge, GaussianProcessRegressor, KernelSVR])
@pytest.mark.parametrize("source", ["csv", "parquet", "blocks", "beside", "encoded", "frame"])
def test_text_is_no_target_of_a_regression_wherever_it_is(machine, source, tmp_path):
    frame = pd.DataFrame(X, columns=list("abc")).assign(t=TEXT)
    path = tmp_path / f"t.{source}"
    model = machine(n_landmarks=20, random_state=0)
    if source in ("csv", "parquet"):
        frame.to_csv(path, index=False) if source == "csv" else frame.to_parquet(path)
        rows = open_rows(path, target="t")
    elif source in ("blocks", "beside"):
        rows = open_rows([(X, TEXT)]) if source == "blocks" else open_rows(X, target=TEXT)
    else:
        rows = TableEncoder(target="t").fit(frame).rows(frame) if source == "encoded" else frame
        model = model if source == "encoded" else make_pipeline(TableEncoder(target="t"), model)
    with pytest.raises(ValueError, match="target of a regression must be numbers"):
        model.fit(rows)


@pytest.mark.parametrize("machine", [KernelRidge(0.1), KernelRidgeClassifier(0.1)])
def test_masked_targets_and_weights_are_refused(machine):
    y = (Y > 0).astype(float)
    with pytest.raises(ValueError, match=r"y is a masked array.*row 7"):
        machine.fit(X, masked(y))
    with pytest.raises(ValueError, match=r"sample_weight is a masked array.*row 7"):
        machine.fit(X, y, sample_weight=masked(W))
    with pytest.raises(ValueError, match=r"target is a masked array.*row 7"):
        open_rows(X, target=masked(y))
    for block in ((X, masked(y)), (X, y, masked(W)), (np.ma.masked_array(X, X > 2), y)):
        with pytest.raises(ValueError, match="is a masked array"):
            machine.fit(open_rows([block]))
    machine.fit(X, np.ma.masked_array(y))  # nothing is masked
    for call in (
        lambda: machine.score(X, masked(y)),
        lambda: machine.score(X, y, masked(W)),
        lambda: machine.fit(X, y, groups=masked(np.arange(50) // 5)),
        lambda: compare(X, masked(y)),
        lambda: permutation_importance(machine, X, masked(y)),
    ):
        with pytest.raises(ValueError, match="is a masked array"):
            call()


@pytest.mark.parametrize(
    ("blocks", "said"),
    [
        ([(X, np.r_[Y, Y])], "50 rows, but 100 targets"),
        ([(X, Y[:40])], "50 rows, but 40 targets"),
        ([X[:25], (X[25:], Y[25:])], "first block holds no target.*from row 25 on has one"),
        ([(X[:25], Y[:25]), X[25:]], "first block holds a target.*from row 25 on has none"),
        ([(X[:25], Y[:25], W[:25]), (X[25:], Y[25:])], "holds a weight.*from row 25 on has none"),
        ([(X, Y, np.ones(10))], "50 rows, but 10 weights"),
        ([(X, Y, np.ones((50, 2)))], "weights must have one dimension"),
        ([(X, Y, np.r_[-5.0, W[1:]])], "weights of list must be finite and not negative.*row 0 has -5"),
        ([(X[:25], Y[:25], W[:25]), (X[25:], Y[25:], np.full(25, np.nan))], "row 25 has nan"),
        ([(X, Y, np.r_[np.inf, W[1:]])], "row 0 has inf"),
        ([(X, Y, np.zeros(50))], "are all 0"),
        ([(X[:25], Y[:25]), (X[25:], TEXT[25:])], "target of the block from row 25 on holds"),
        ([(X[:25], Y[:25]), (X[25:], np.c_[Y, Y][25:])], "target of the block from row 25 on holds"),
        ([(X, np.r_[np.nan, Y[1:]])], "missing or not finite in row 0"),
    ],
)
@pytest.mark.parametrize("solver", ["factor", "cg"])
def test_blocks_are_checked_as_arrays_are(blocks, said, solver):
    with pytest.raises(ValueError, match=said):
        KernelRidge(0.1, gamma=0.3, landmarks=X[:10], solver=solver).fit(open_rows(blocks))


def test_checked_blocks_give_the_fit_of_arrays():
    def machine():
        return KernelRidge(0.1, gamma=0.3, landmarks=X[:10])

    inside = machine().fit(open_rows([(X, Y, W)])).predict(X)
    np.testing.assert_allclose(inside, machine().fit(X, Y, sample_weight=W).predict(X), rtol=1e-10)


def test_weights_are_not_given_twice():
    with pytest.raises(ValueError, match="holds weights of its own"):
        KernelRidge(0.1).fit(open_rows([(X, Y, W)]), sample_weight=W)


def test_what_was_checked_is_put_beside_the_rows():
    checked = check_target(as_blocks(X), Y, W, numeric=True)
    joined = checked.joined
    block = joined.block(0)
    np.testing.assert_array_equal(block.y, Y)
    np.testing.assert_array_equal(block.weight, W)
    inside = check_target(joined, numeric=True)
    assert inside.y is None
    assert inside.joined is joined
    with pytest.raises(ValueError, match="requires y to be passed"):
        check_target(as_blocks(X), numeric=True)
    for y, w in ((np.r_[np.nan, Y[1:]], W), (Y, -W)):
        with pytest.raises(ValueError, match=r"NaN|negative"):
            check_target(as_blocks(X, y, weight=w), numeric=True)


def test_no_label_is_none():
    with pytest.raises(ValueError, match=r"y contains None \(first in row"):
        KernelRidgeClassifier().fit(X, np.where(Y > 0, "b", None))


def test_rows_taken_by_number_say_that_they_hold_no_weights():
    taken = TakenRows(as_blocks(X, Y, weight=W), np.array([3, 1]))
    assert not taken.has_weight
    assert taken.block(0).weight is None


def test_files_that_hold_no_rows_or_dense_arrays_say_so(tmp_path):
    np.savez(tmp_path / "d.npz", X=X)
    np.save(tmp_path / "e.npy", np.empty((0, 3)))
    for options in ({}, {"target": 2}):
        with pytest.raises(DataFileError, match=r"holds the arrays X: of \.npz files only sparse"):
            open_rows(tmp_path / "d.npz", **options)
    with pytest.raises(DataFileError, match="holds no rows"):
        open_rows(tmp_path / "e.npy")
    with pytest.raises(DataFileError, match="rows from 2 on have 3 columns, but the rows before them have 2"):
        open_rows([np.ones((2, 2)), np.zeros((3, 3))])
