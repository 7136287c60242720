"""The estimators: thin shells over the core."""

from nystrom.estimators.eigen import kernel_eigh
from nystrom.estimators.features import Nystroem
from nystrom.estimators.ridge import KernelRidge

__all__ = ["KernelRidge", "Nystroem", "kernel_eigh"]
