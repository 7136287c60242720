"""
From a CSV to a model
=====================

A table with text, dates and gaps is encoded, and a model is fitted, saved and loaded. The same from the shell:
``nystrom fit flats.csv --target rent --out flats.model`` and ``nystrom predict flats.model new.csv --out rents.csv``.
"""

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.pipeline import make_pipeline

import nystrom
from nystrom import KernelRidge
from nystrom.preprocessing import TableEncoder

rng = np.random.default_rng(0)
n = 3000
size, town = rng.uniform(20, 150, n), rng.choice(["Aalen", "Bonn", "Celle"], n)
built = pd.Timestamp("1950-01-01") + pd.to_timedelta(rng.integers(0, 26_000, n), unit="D")
rent = size * np.select([town == "Bonn", town == "Celle"], [14, 9], 11) + 0.01 * (built.year - 1950) * size
table = pd.DataFrame({"size": np.where(rng.random(n) < 0.1, np.nan, size), "town": town, "built": built})

folder = Path(tempfile.mkdtemp())
table.assign(rent=rent + rng.normal(scale=40, size=n)).to_csv(folder / "flats.csv", index=False)

flats = pd.read_csv(folder / "flats.csv", parse_dates=["built"])
train, test = flats[:2000], flats[2000:]
model = make_pipeline(TableEncoder(), KernelRidge("auto", n_landmarks=300, fit_intercept=True, random_state=0))
model.fit(train.drop(columns="rent"), train["rent"])
nystrom.save(model, folder / "flats.model")
predicted = nystrom.load(folder / "flats.model").predict(test.drop(columns="rent"))

figure, axis = plt.subplots(figsize=(5, 4.4), layout="constrained")
gap = test["size"].isna().to_numpy()
axis.scatter(test["rent"][~gap], predicted[~gap], s=8, label="size known")
axis.scatter(test["rent"][gap], predicted[gap], s=8, label="size missing")
axis.axline((800, 800), slope=1, color="0.5")
axis.set(xlabel="rent", ylabel="predicted")
axis.legend()
plt.show()
