"""Pieces of rows, dense or sparse, put together."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import scipy.sparse as sp

from nystrom.types import Array, Matrix, issparse


def stack_rows(pieces: Sequence[Matrix], order: Array | None = None) -> Matrix:
    """Return the rows of all pieces as one matrix: CSR if any piece is sparse.

    Parameters
    ----------
    pieces : sequence of matrices
    order : array of int, optional
        What sorted the wanted row numbers (``np.argsort``) before the pieces were read. The rows then come back in the
        order in which they were wanted.

    Examples
    --------
    >>> import numpy as np
    >>> wanted = np.array([5, 0, 3])
    >>> stack_rows([np.array([[0]]), np.array([[3], [5]])], np.argsort(wanted)).ravel()
    array([5, 0, 3])
    """
    dense: list[Array] = [piece for piece in pieces if not issparse(piece)]
    stacked: Matrix = np.concatenate(dense) if len(dense) == len(pieces) else sp.vstack(pieces, format="csr")
    if order is None:
        return stacked
    back = np.empty_like(order)
    back[order] = np.arange(len(order))
    return stacked[back]


def join_arrays(pieces: Sequence[Array | None]) -> Array | None:
    """Return what stands beside the rows of all pieces, such as their targets, as one array; None if any has none."""
    present = [np.asarray(piece) for piece in pieces if piece is not None]
    return np.concatenate(present) if len(present) == len(pieces) else None
