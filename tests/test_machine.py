"""The cores and the memory of a container, from the files of its control groups."""

import math
import threading

import numpy as np
import pytest

from nystrom import KernelRidge, Nystroem, machine, open_rows
from nystrom.exceptions import MemoryBudgetError
from nystrom.machine import available_cores, container_cores, container_free_memory, container_memory, machine_memory


def tree(folder, own, files):
    """Make a system whose process is in the groups ``own`` and whose control groups say ``files``."""
    for path, text in {"proc/self/cgroup": own, **files}.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    return folder


CASES = {
    "version 2": ("0::/\n", {"cpu.max": "150000 100000\n", "memory.max": "1000\n"}, 2, 1000),
    "version 2, no limit": ("0::/\n", {"cpu.max": "max 100000\n", "memory.max": "max\n"}, math.inf, math.inf),
    "nested": (
        "0::/pod/box\n",
        {"pod/cpu.max": "300000 100000", "pod/box/cpu.max": "max 100000", "pod/memory.max": "500", "memory.max": "900"},
        3,
        500,
    ),
    "path of the host": ("0::/docker/ab12\n", {"cpu.max": "50000 100000", "memory.max": "700"}, 1, 700),
    "version 1": (
        "4:memory:/job\n3:cpu,cpuacct:/job\n1:name=systemd:/job\n",
        {
            "cpu,cpuacct/job/cpu.cfs_quota_us": "400000",
            "cpu,cpuacct/job/cpu.cfs_period_us": "100000",
            "memory/job/memory.limit_in_bytes": "300",
            "memory/memory.limit_in_bytes": "9223372036854771712",
        },
        4,
        300,
    ),
    "version 1, folder of one controller": (
        "3:cpu,cpuacct:/\n",
        {"cpu/cpu.cfs_quota_us": "200000", "cpu/cpu.cfs_period_us": "100000"},
        2,
        math.inf,
    ),
    "version 1, no quota": ("3:cpu:/\n", {"cpu/cpu.cfs_quota_us": "-1"}, math.inf, math.inf),
    "no control groups": ("", {}, math.inf, math.inf),
    "unreadable numbers": ("0::/\n", {"cpu.max": "many", "memory.max": ""}, math.inf, math.inf),
}


@pytest.mark.parametrize("case", CASES)
def test_the_limits_of_every_group_around_the_process_count(case, tmp_path):
    own, files, cores, memory = CASES[case]
    system = tree(tmp_path, own, {f"sys/fs/cgroup/{name}": text for name, text in files.items()})
    assert container_cores(system) == cores
    assert container_memory(system) == memory


def test_memory_in_use_is_not_free(tmp_path):
    files = {"sys/fs/cgroup/memory.max": "1000", "sys/fs/cgroup/memory.current": "400"}
    assert container_free_memory(tree(tmp_path, "0::/\n", files)) == 600


def test_a_system_without_these_files_has_no_limit(tmp_path):
    assert container_cores(tmp_path) == container_memory(tmp_path) == container_free_memory(tmp_path) == math.inf


def test_the_container_limits_the_process(tmp_path, monkeypatch):
    files = {"sys/fs/cgroup/cpu.max": "100000 100000", "sys/fs/cgroup/memory.max": "123456"}
    monkeypatch.setattr(machine, "_SYSTEM", tree(tmp_path, "0::/\n", files))
    assert available_cores() == 1
    assert machine_memory() == 123456


@pytest.mark.parametrize(
    ("name", "setting", "cores"),
    [
        ("OMP_NUM_THREADS", "3,2", 3),
        ("OPENBLAS_NUM_THREADS", "2", 2),
        ("OMP_NUM_THREADS", "0", 8),
        ("OMP_NUM_THREADS", "many", 8),
    ],
)
def test_settings_of_the_user_are_an_upper_limit(name, setting, cores, tmp_path, monkeypatch):
    for other in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        monkeypatch.delenv(other, raising=False)
    monkeypatch.setattr(machine, "_SYSTEM", tmp_path)
    monkeypatch.setattr(machine.os, "sched_getaffinity", lambda pid: set(range(8)), raising=False)
    monkeypatch.setenv(name, setting)
    assert available_cores() == cores


def test_systems_without_these_calls_degrade(tmp_path, monkeypatch):
    monkeypatch.setattr(machine, "_SYSTEM", tmp_path)
    monkeypatch.delattr(machine.os, "sched_getaffinity", raising=False)
    monkeypatch.delattr(machine.os, "sysconf", raising=False)
    assert available_cores() >= 1
    assert machine_memory() is None
    assert machine.free_memory() is None


def test_a_fit_takes_the_threads_and_the_memory_of_the_container(tmp_path, monkeypatch):
    files = {"sys/fs/cgroup/cpu.max": "100000 100000", "sys/fs/cgroup/memory.max": "1000000000"}
    monkeypatch.setattr(machine, "_SYSTEM", tree(tmp_path, "0::/\n", files))
    for setting in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        monkeypatch.delenv(setting, raising=False)
    threads = set()

    def kernel(A, B):
        threads.add(threading.get_ident())
        return A @ B.T

    X = np.random.default_rng(0).normal(size=(9_000, 2))
    Nystroem(kernel, n_components=2, n_landmarks=5, random_state=0).fit(open_rows(X, block_rows=500))
    assert len(threads) == 1
    with pytest.raises(MemoryBudgetError, match="this machine has 1GB"):
        KernelRidge(n_landmarks=8_000, solver="factor").fit(X, X[:, 0])
