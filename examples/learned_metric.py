"""
A learned metric
================

Five of twenty columns matter, in Friedman's first function. A plain Gaussian kernel treats all columns alike. A metric
learned from the gradients of the fit finds those five, and the error falls.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_friedman1

from nystrom import KernelRidge

X, y = make_friedman1(3000, n_features=20, noise=0.1, random_state=0)
train, test = slice(2000), slice(2000, None)
errors = {}
for metric in (None, "diagonal"):
    model = KernelRidge("auto", metric=metric, n_landmarks=300, fit_intercept=True, random_state=0)
    model.fit(X[train], y[train])
    errors[metric or "plain"] = np.sqrt(np.mean((model.predict(X[test]) - y[test]) ** 2))

figure, axes = plt.subplots(1, 2, figsize=(6.4, 3), layout="constrained", width_ratios=(3, 1))
axes[0].bar(range(20), model.feature_importances_, color=["C0"] * 5 + ["0.7"] * 15)
axes[0].set(xlabel="column", ylabel="importance", title="the first five matter", xticks=range(0, 20, 5))
axes[1].bar(list(errors), list(errors.values()))
axes[1].set_title("test error")
plt.show()
