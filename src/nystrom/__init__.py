"""Kernel machines at any scale, from a few landmarks."""

__version__ = "0.1.0"
