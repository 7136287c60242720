"""The public name of :mod:`nystrom.tables`."""

from nystrom.tables import TableEncoder

__all__ = ["TableEncoder"]
