"""Kernel values written where they are used, with what can be seen of them on the way at no cost."""

from __future__ import annotations

from typing import Protocol

from nystrom.kernels.base import Prepared
from nystrom.types import Array, Matrix


class Filling(Protocol):
    """The method ``into`` of a function from rows to kernel values that can write them where they are used."""

    def __call__(
        self, out: Array, X: Matrix, minus: Array | None, largest: Array | None = None, kept: Array | None = None
    ) -> float | None: ...


def fill(
    evaluate: Prepared,
    out: Array,
    X: Matrix,
    minus: Array | None = None,
    largest: Array | None = None,
    kept: Array | None = None,
) -> float | None:
    """Fill ``out`` with ``k(X, Z) − minus``; return None, and leave it as it is, where the kernel cannot do so.

    Parameters
    ----------
    evaluate : Prepared
        The kernel with its landmarks.
    out : array (n, m)
    X : matrix (n, p)
    minus : array (m,), optional
        Rounded to the dtype of ``out``. Without it there is neither ``largest`` nor ``kept``.
    largest : array (n,), optional
        Filled with the largest of k(x, z) of each row.
    kept : array (n, m), optional
        Filled with ``k(X, Z)``.

    Returns
    -------
    float or None
        The sum of the rows' squared distances from some point: not finite if a row is not.
    """
    # Asking for the method takes a tenth of the time of isinstance with a protocol.
    into: Filling | None = getattr(evaluate, "into", None)
    return None if into is None else into(out, X, minus, largest, kept)
