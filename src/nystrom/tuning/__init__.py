"""Kernels, metrics and regularisation chosen on held-out rows."""
