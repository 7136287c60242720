"""
Regression on sparse text
=========================

Text as tf-idf has very many columns, nearly all of them zero. Rows and landmarks stay sparse. The target is the length
of docstrings of NumPy and SciPy.
"""

import inspect

import matplotlib.pyplot as plt
import numpy as np
import scipy.linalg
import scipy.optimize
import scipy.signal
import scipy.stats
from sklearn.feature_extraction.text import TfidfVectorizer

from nystrom import KernelRidge

modules = (np, np.linalg, np.fft, scipy.linalg, scipy.optimize, scipy.signal, scipy.stats)
texts = sorted({inspect.getdoc(getattr(m, name)) or "" for m in modules for name in dir(m) if name.islower()})
texts = [text for text in texts if len(text.split()) > 20]
y = np.log([len(text.split()) for text in texts])
X = TfidfVectorizer(sublinear_tf=True).fit_transform(texts)
order = np.random.default_rng(0).permutation(len(y))
train, test = order[: len(y) * 3 // 4], order[len(y) * 3 // 4 :]

model = KernelRidge("auto", n_landmarks=300, fit_intercept=True, random_state=0).fit(X[train], y[train])
predicted = model.predict(X[test])

figure, axis = plt.subplots(figsize=(5, 4.4), layout="constrained")
axis.scatter(y[test], predicted, s=8)
axis.axline((y.mean(), y.mean()), slope=1, color="0.5")
axis.set_title(f"{X.shape[0]} texts × {X.shape[1]:,} words: R² {model.score(X[test], y[test]):.2f}")
axis.set(xlabel="log words, true", ylabel="log words, predicted")
plt.show()
