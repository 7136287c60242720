"""Every writer, killed at random and at every rename, twice at once, and without room: nothing lost, mixed or left."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fault_jobs import JOBS

pytestmark = [
    pytest.mark.faults,
    pytest.mark.skipif(sys.platform != "linux", reason="needs fork, signals and process numbers"),
]

# Kills in all, over the writers and the ways to kill them.
KILLS = int(os.environ.get("NYSTROM_FAULT_KILLS", "700"))
SHARES = {"random": 0.35, "points": 0.35, "interrupt": 0.15, "term": 0.15}
_CAMPAIGN = Path(__file__).parent / "fault_campaign.py"


def _run(job: str, way: str, count: int) -> dict[str, Any]:
    command = [sys.executable, str(_CAMPAIGN), job, "--way", way, "--kills", str(count)]
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr[-2000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.parametrize("way", SHARES)
@pytest.mark.parametrize("job", JOBS)
def test_after_a_kill_the_next_call_gives_the_same_bytes_and_leaves_nothing(
    job: str, way: str, record_property: Callable[[str, object], None]
) -> None:
    wanted = max(round(KILLS * SHARES[way] / len(JOBS)), 1)
    found = _run(job, way, wanted)
    record_property("faults", {**found, "failures": len(found["failures"])})
    assert not found["failures"]
    if way != "points":  # their number is fixed
        assert found["kills"] == wanted


@pytest.mark.parametrize("job", JOBS)
def test_two_writers_at_once_do_not_mix(job: str, record_property: Callable[[str, object], None]) -> None:
    found = _run(job, "two", max(KILLS // 70, 1))
    record_property("faults", {"pairs": found["kills"], "failures": len(found["failures"])})
    assert not found["failures"]


@pytest.mark.parametrize("job", JOBS)
def test_a_full_disk_is_an_error_that_leaves_nothing(job: str, record_property: Callable[[str, object], None]) -> None:
    found = _run(job, "full", max(KILLS // 70, 1))
    record_property("faults", {"full disks": found["kills"], "failures": len(found["failures"])})
    assert not found["failures"]
