"""The estimators: thin shells over the core."""

from nystrom.estimators.eigen import kernel_eigh
from nystrom.estimators.features import Nystroem

__all__ = ["Nystroem", "kernel_eigh"]
