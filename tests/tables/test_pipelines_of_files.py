"""Pipelines of a table encoder and a machine, given files."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.pipeline import make_pipeline

import nystrom
from nystrom.preprocessing import TableEncoder


def test_every_row_of_a_file_is_predicted_whether_its_target_is_known_or_not(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    table = pd.DataFrame(rng.normal(size=(80, 2)), columns=["a", "b"])
    table["t"] = table["a"] ** 2
    model = make_pipeline(TableEncoder(target="t"), nystrom.KernelRidge("auto", random_state=0)).fit(table)
    for gaps in (slice(3, 5), slice(0, 79)):
        holed = table.copy()
        holed.loc[gaps, "t"] = np.nan
        holed.to_csv(tmp_path / "holed.csv", index=False)
        np.testing.assert_array_equal(model.predict(tmp_path / "holed.csv"), model.predict(table))
    table.to_csv(tmp_path / "whole.csv", index=False)
    assert model.score(tmp_path / "whole.csv") == pytest.approx(model.score(table, table["t"]))
    assert model.score(table) == model.score(table, table["t"])
    for without in (table[["a", "b"]], holed, tmp_path / "holed.csv"):
        with pytest.raises(ValueError, match="a score needs y, and these rows do not hold their target"):
            model.score(without)
