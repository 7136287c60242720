"""Numerical solvers: from a map and a target to coefficients."""
