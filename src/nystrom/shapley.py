"""Shapley values: what each column adds to a prediction, exact for kernels that are products over columns."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np

from nystrom.checks import RandomState, check_choice, make_generator
from nystrom.exceptions import MissingDependencyError
from nystrom.explanation import Span, answer, make_frame, open_model
from nystrom.kernels import Gaussian, InMetric, Kernel, Laplacian, OnColumns, Overlap, Product, Scaled, Sum
from nystrom.kernels.base import GammaKernel
from nystrom.loops import coalition_sums
from nystrom.machine import available_cores
from nystrom.models import to_numpy
from nystrom.solvers.exact import TILE_ROWS
from nystrom.types import Array, RowsLike, to_dense

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_N_BACKGROUND = 50


@dataclass(frozen=True)
class Explanation:
    """Shapley values: what each column adds to each prediction.

    Attributes
    ----------
    values : array of shape (n, columns) or (n, columns, t)
        t is the number of outputs: several targets, or the scores of three or more classes.
    base_values : float or array of shape (t,)
        The mean prediction for the background. Added to the values of a row, it gives that row's prediction.
    columns : tuple of str
        The original columns.
    errors : array like values, or None
        Standard errors where the values were sampled; None where they are exact.
    data : array of shape (n, columns) or None
        The columns as the machine sees them; NaN for columns that are not a single number.
    """

    values: Array
    base_values: Any
    columns: tuple[str, ...]
    errors: Array | None = None
    data: Array | None = None

    def __repr__(self) -> str:
        how = "exact" if self.errors is None else f"sampled, standard error up to {self.errors.max():.2g}"
        sizes = self._sizes
        order = np.argsort(-sizes, kind="stable")
        listed = ", ".join(f"{self.columns[j]} {sizes[j]:.3g}" for j in order[:5]) + (", …" if len(order) > 5 else "")
        return f"Shapley values of {len(self.values):,} rows ({how}); mean size: {listed}"

    @property
    def _sizes(self) -> Array:
        """The mean size of the values of each column, over rows and outputs."""
        return np.abs(self.values).reshape(*self.values.shape[:2], -1).mean(axis=(0, 2))

    def to_frame(self) -> Any:
        """Return a pandas frame of the values with a row per explained row, for a single output."""
        if self.values.ndim == 3:
            raise ValueError("a frame holds one output; take values[:, :, k].")
        return make_frame(dict(zip(self.columns, self.values.T, strict=True)))

    def plot(
        self,
        row: int | None = None,
        *,
        kind: str = "bars",
        output: int = 0,
        most: int = 15,
        ax: Axes | None = None,
    ) -> Axes:
        """Draw mean sizes as bars, or for one ``row`` the steps from the base value to its prediction.

        With ``kind="swarm"``, draw a point per row and column instead, coloured by the value of the column.
        """
        from nystrom.plotting import plot_shapley, plot_swarm

        values = self.values if self.values.ndim == 2 else self.values[:, :, output]
        base = float(np.ravel(self.base_values)[output])
        if check_choice(kind, "kind", ("bars", "swarm")) == "swarm" and row is None:
            return plot_swarm(values, self.data, self.columns, most=most, ax=ax)
        return plot_shapley(values, base, self.columns, row=row, most=most, ax=ax)

    def to_shap(self) -> Any:
        """Return a :class:`shap.Explanation` for the plots of the package ``shap``."""
        try:
            kind = import_module("shap").Explanation
        except ImportError as error:
            raise MissingDependencyError("shap", "plot", "to_shap") from error
        base = np.broadcast_to(self.base_values, (len(self.values), *np.shape(self.base_values)))
        return kind(self.values, base_values=base, data=self.data, feature_names=list(self.columns))


def explain(model: Any, X: RowsLike, background: RowsLike = None, *, random_state: RandomState = 0) -> Explanation:
    """Return the Shapley values of predictions: what each original column adds, relative to background rows.

    A coalition's value is the mean prediction over the background rows with the coalition's columns set to those of the
    row. Predictions are numbers, or scores of classes (for logistic regression, log-odds). For products over columns
    (the Gaussian, the Laplacian and the overlap kernel, with one bandwidth or one per column, of all or some columns,
    their sums and products) the values are exact: sums over all subsets are integrals of polynomials, which
    Gauss–Legendre nodes integrate exactly, in O(m p²) per row and background row for m landmarks (with
    ``solver="exact"``, training rows) and p columns. For other kernels they are sampled over orders of the columns, two
    for each background row, with standard errors.

    Parameters
    ----------
    model : estimator or Pipeline
        A fitted machine with a target, or a pipeline that ends with one.
    X : rows
        The rows to explain.
    background : rows, optional
        The rows to compare with, such as training rows; at most 50 are drawn. By default drawn from X, if it has 50.
    random_state : int, Generator, RandomState or None
        Seed of the draws.

    Examples
    --------
    >>> import numpy as np, nystrom
    >>> X = np.random.default_rng(0).normal(size=(300, 2))
    >>> model = nystrom.KernelRidge(n_landmarks=50, random_state=0).fit(X, X[:, 0] + X[:, 1])
    >>> found = nystrom.explain(model, X[:3], background=X)
    >>> bool(np.allclose(found.base_values + found.values.sum(axis=1), model.predict(X[:3])))
    True
    """
    rng = make_generator(random_state)
    opened = open_model(model, X, rng=rng)
    if background is None and len(opened.X) < _N_BACKGROUND:
        raise ValueError(
            f"background=None draws {_N_BACKGROUND} rows from X, which has {len(opened.X)}; give the rows to compare "
            f"with, such as background=X_train."
        )
    beside = open_model(model, X if background is None else background, max_rows=_N_BACKGROUND, rng=rng).X
    machine, spans = opened.machine, opened.spans
    starts = np.array([span.start for span in spans])
    spanned = hasattr(machine, "landmark_coef_")
    terms = _product_terms(machine.map_.kernel, starts, opened.X.shape[1]) if spanned else None
    rows, beside = opened.X.astype(np.float64), beside.astype(np.float64)
    errors = None
    if terms is None:
        values, errors = _sampled(machine, rows, beside, spans, rng)
    else:
        values = _exact(machine, terms, rows, beside, len(spans))
    base = answer(machine, beside).mean(axis=0)
    if values.shape[2] == 1:
        values, base = values[:, :, 0], base[0]
        errors = None if errors is None else errors[:, :, 0]
    data = np.column_stack([rows[:, s.start] if s.stop == s.start + 1 else np.full(len(rows), np.nan) for s in spans])
    return Explanation(values, base, tuple(span.name for span in spans), errors, data)


# Function of rows (n, p) and landmarks (m, p) that returns the factor of each original column, (n, columns, m).
_Factors = Callable[[Array, Array], Array]
# Kernels exp(-gamma · a sum over columns), with the summand of each.
_DISTANCES: dict[type, Callable[[Array, Array], Array]] = {
    Gaussian: lambda x, z: np.square(x - z),
    Laplacian: lambda x, z: np.abs(x - z),
    Overlap: lambda x, z: (x != z).astype(float),
}


def _product_terms(kernel: Kernel, starts: Array, n_columns: int) -> list[_Factors] | None:
    """Return functions whose results, multiplied over columns and then added, give the kernel; None if none exist."""
    if isinstance(kernel, Sum):
        left, right = (_product_terms(part, starts, n_columns) for part in (kernel.left, kernel.right))
        return None if left is None or right is None else [*left, *right]
    if isinstance(kernel, Product):
        left, right = (_product_terms(part, starts, n_columns) for part in (kernel.left, kernel.right))
        if left is None or right is None:
            return None
        return [lambda X, Z, f=f, g=g: f(X, Z) * g(X, Z) for f in left for g in right]  # type: ignore[misc]
    if isinstance(kernel, Scaled):
        inner = _product_terms(kernel.kernel, starts, n_columns)
        share = float(kernel.factor) ** (1 / len(starts))
        return None if inner is None else [lambda X, Z, f=f: share * f(X, Z) for f in inner]  # type: ignore[misc]
    if isinstance(kernel, InMetric) and kernel.root.ndim == 1:
        inner, root = _product_terms(kernel.kernel, starts, n_columns), kernel.root
        return None if inner is None else [lambda X, Z, f=f: f(X * root, Z * root) for f in inner]  # type: ignore[misc]
    if isinstance(kernel, OnColumns):
        owner = np.repeat(np.arange(len(starts)), np.diff([*starts, n_columns]))
        numbers = np.array(kernel.numbers(n_columns))
        # One factor per column of the inner kernel: columns of one original column need not be adjacent there.
        inner = _product_terms(kernel.kernel, np.arange(len(numbers)), len(numbers))
        return None if inner is None else [partial(_gather, f, numbers, owner[numbers], len(starts)) for f in inner]
    if not isinstance(kernel, GammaKernel) or type(kernel) not in _DISTANCES:
        return None
    gamma, power = kernel._number(n_columns), 1.0
    if isinstance(kernel, Laplacian):
        if kernel.p != kernel.q:
            return None
        gamma, power = gamma**kernel.p, kernel.p

    def factors(X: Array, Z: Array) -> Array:
        parts = _DISTANCES[type(kernel)](X[:, :, None], Z.T[None]) ** power
        return np.exp(-gamma * np.add.reduceat(parts, starts, axis=1))

    return [factors]


def _gather(factors: _Factors, numbers: Array, owners: Array, count: int, X: Array, Z: Array) -> Array:
    """Return for each original column the product of the factors of its columns; 1 if it has none."""
    found = factors(X[:, numbers], Z[:, numbers])
    out = np.ones((len(X), count, len(Z)))
    for j, owner in enumerate(owners):
        out[:, owner] *= found[:, j]
    return out


def _exact(machine: Any, terms: list[_Factors], rows: Array, beside: Array, n_columns: int) -> Array:
    """Return the Shapley values of a machine with a product kernel, shape (n, columns, t)."""
    # Enough nodes to integrate a polynomial of degree columns - 1 exactly.
    nodes, shares = np.polynomial.legendre.leggauss((n_columns + 1) // 2)
    nodes, shares = (nodes + 1) / 2, shares / 2
    weights = np.full(len(beside), 1 / len(beside))
    values = np.zeros((len(rows), n_columns, machine.landmark_coef_.shape[1]))
    with ThreadPoolExecutor(available_cores()) as pool:
        for Z, coef in _points(machine):
            for term in terms:
                held = term(beside, Z)

                def one(i: int, term: _Factors = term, held: Array = held, Z: Array = Z, coef: Array = coef) -> None:
                    factors = term(rows[i : i + 1], Z)[0]
                    values[i] += coalition_sums(factors, held, weights, nodes, shares) @ coef

                list(pool.map(one, range(len(rows))))
    return values


def _points(machine: Any) -> Iterator[tuple[Array, Array]]:
    """Yield the points z and coefficients of ``f(x) = Σ_z coef_z k(x, z)``, some at a time."""
    if getattr(machine, "solver_", None) == "exact":
        for block in machine.training_rows_.iterate():
            yield np.asarray(to_dense(block.X)), machine._dual_coef[block.start : block.stop]
        return
    parts = to_numpy(machine)
    for start in range(0, len(parts["coef"]), TILE_ROWS):
        yield tuple(parts[name][start : start + TILE_ROWS] for name in ("landmarks", "coef"))


def _sampled(
    machine: Any, rows: Array, beside: Array, spans: Sequence[Span], rng: np.random.Generator
) -> tuple[Array, Array]:
    """Return sampled Shapley values and standard errors: one column order and its reverse per background row."""
    sums = squares = np.zeros(())
    for row in beside:
        order = rng.permutation(len(spans))
        added: Array = np.zeros(())
        for turn in (order, order[::-1]):
            mixed = np.repeat(row[None], len(rows), axis=0)
            steps = [answer(machine, mixed)]
            for j in turn:
                mixed[:, spans[j].at] = rows[:, spans[j].at]
                steps.append(answer(machine, mixed))
            added = added + np.diff(np.stack(steps, axis=1), axis=1)[:, np.argsort(turn)] / 2
        sums, squares = sums + added, squares + np.square(added)
    count = len(beside)
    mean = sums / count
    variance = np.maximum(squares / count - mean**2, 0.0) / max(count - 1, 1)
    return mean, np.sqrt(variance)
