"""From tables to rows: numbers, text, dates and gaps, learned in one pass."""

from nystrom.tables.encoder import TableEncoder

__all__ = ["TableEncoder"]
