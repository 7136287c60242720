"""Machines that find their own number of landmarks."""

from __future__ import annotations

import time

from nystrom.certificate.tolerance import Sized, cut_rank, find_size
from nystrom.checks import check_choice, check_optional_count
from nystrom.engine.survey import Survey
from nystrom.estimators.base import MOST_LANDMARKS, KernelMachine
from nystrom.estimators.display import StageRecord
from nystrom.exceptions import ApproximationWarning
from nystrom.factor import FACTORS, NystromMap, truncate
from nystrom.fold import Kept
from nystrom.generator import make_generator
from nystrom.landmarks import make_selector
from nystrom.landmarks.base import resolve
from nystrom.landmarks.fixed import GIVEN
from nystrom.rows import RowBlocks
from nystrom.warn import warn_caller


class GrowingMachine(KernelMachine):
    """A machine whose landmarks can be as many as an error asks for."""

    def _fit_to_tolerance(
        self, rows: RowBlocks, tol: float, norm: str, *, keep_kernel: bool
    ) -> tuple[NystromMap, Kept]:
        """Find landmarks enough for the tolerance, fit the map to all rows, and cut the rank as far as it allows."""
        check_choice(self.factor, "factor", FACTORS)
        began = time.perf_counter()
        selector = make_selector(self.landmarks)
        asked = None if self.n_landmarks == "auto" else check_optional_count(self.n_landmarks, "n_landmarks")
        most = self._most_landmarks(rows, selector, asked or MOST_LANDMARKS)
        survey = Survey(rows, self._fit_engine(rows, selector, most))
        rng = make_generator(self.random_state)
        kernel = self._checked_kernel(rows)
        found = find_size(survey, selector, kernel, tol, rng, norm=norm, most=most)
        kernel = resolve(kernel, survey)
        middle, passes = time.perf_counter(), survey.n_passes
        searched = StageRecord("search", passes, middle - began)
        keep = Kept(self._room_for_kernel(survey, kernel, len(found.landmarks)) if keep_kernel else None)
        fitted, apart = self._factorise_watched(survey, kernel, found.landmarks, None, keep)
        if found.met:
            fitted = truncate(fitted, cut_rank(fitted.eigenvalues, found.error, tol))
        else:
            self._warn_not_met(found, tol, most, rows.shape[0])
        self.error_, self.sizes_tried_ = found.error, found.tried
        self._stages = (searched, StageRecord("factor", survey.n_passes - passes, time.perf_counter() - middle))
        self._store_map(fitted)
        self._certify(rows, fitted, apart, keep)
        return fitted, keep

    def _warn_not_met(self, found: Sized, tol: float, most: int, n_rows: int) -> None:
        reached = f"{len(found.landmarks)} landmarks reach {found.error}, and tol={tol:g} was asked for"
        if isinstance(make_selector(self.landmarks), GIVEN):
            cause = "these are the landmarks that were given"
        elif len(found.landmarks) < most:
            cause = "the rows have no more that differ enough"
        elif most >= n_rows:
            cause = "there are no more rows"
        else:
            limit = "max_memory" if self.max_memory is not None and most < MOST_LANDMARKS else "n_landmarks"
            limit = "n_landmarks" if self.n_landmarks == most else limit
            cause = f"{limit} allows no more; it would take about {found.needed:,}"
        advice = "Raise tol, allow more, or take a wider kernel (a smaller gamma)."
        warn_caller(f"{reached}: {cause}. {advice}", ApproximationWarning)
