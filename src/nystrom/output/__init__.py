"""Results larger than memory: :mod:`resume` locks, resumes and moves into place; :mod:`writers` knows the formats."""

from nystrom.output.resume import describe_job, write_rows

__all__ = ["describe_job", "write_rows"]
