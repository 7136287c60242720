"""Landmarks drawn uniformly from the rows: the original Nyström method."""

from __future__ import annotations

import numpy as np

from nystrom.engine.survey import Survey
from nystrom.kernels import Kernel
from nystrom.landmarks.base import Landmarks, Selector, row_weights, rows_in_order
from nystrom.landmarks.weighted import draw_weighted


class Uniform(Selector):
    """Draw m rows uniformly without replacement (section 3.2 of the paper). Cost: O(mp), and no pass.

    Rows with weights are drawn in proportion to these.

    Examples
    --------
    >>> import numpy as np
    >>> from nystrom.landmarks import Uniform, select_landmarks
    >>> X = np.arange(20.0).reshape(10, 2)
    >>> found = select_landmarks(X, 3, method=Uniform(), random_state=0)
    >>> bool((found.points == X[found.indices]).all())
    True
    """

    def _select(self, survey: Survey, m: int, kernel: Kernel, rng: np.random.Generator) -> Landmarks:
        weight = row_weights(survey)
        if weight is not None:
            return draw_weighted(survey, weight, m, rng)
        n = survey.rows.shape[0]
        head = rng.choice(n, size=m, replace=False)

        def order() -> np.ndarray:
            return np.concatenate([head, rng.permutation(np.setdiff1d(np.arange(n), head))])

        return rows_in_order(survey, head, order)
