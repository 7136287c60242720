"""
A given error instead of a number of landmarks
==============================================

``tol`` is the relative error to reach. The fit adds landmarks until the upper end of the error's interval is below it.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import load_digits

from nystrom import Nystroem

X, _ = load_digits(return_X_y=True)
tolerances = (0.3, 0.2, 0.1, 0.05)
fits = [Nystroem(tol=tol, random_state=0).fit(X) for tol in tolerances]
errors = [fit.approximation_error(X).value for fit in fits]

figure, axis = plt.subplots(figsize=(6, 4), layout="constrained")
axis.plot(tolerances, tolerances, color="0.6", label="tol")
axis.plot(tolerances, errors, "o-", label="reached")
for tol, error, fit in zip(tolerances, errors, fits, strict=True):
    text = f"{len(fit.landmarks_)} landmarks,\nrank {fit.n_components_}"
    axis.annotate(text, (tol, error), textcoords="offset points", xytext=(6, -22), fontsize="x-small")
axis.margins(x=0.25, y=0.15)
axis.set(xscale="log", yscale="log", xlabel="tol", ylabel="relative error (Frobenius)")
axis.set_xticks(tolerances, map(str, tolerances))
axis.set_yticks(tolerances, map(str, tolerances))
axis.minorticks_off()
axis.legend()
plt.show()
