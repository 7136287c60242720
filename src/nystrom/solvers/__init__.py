"""The numerics behind the machines: from a map and a target to coefficients."""
