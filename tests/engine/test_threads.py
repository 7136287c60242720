"""One limit on BLAS threads for the process, asked for by many threads."""

import os
import subprocess
import sys
import textwrap
import threading
from contextlib import ExitStack
from functools import partial

import pytest

from nystrom.engine.threads import BlasLimiter, Limit, blas_threads


class Library:
    """A BLAS whose setting is the process's, or each thread's."""

    def __init__(self, threads=4, layer="pthreads"):
        self.threading_layer = layer
        self.default = threads
        self.shared = threads
        self.own = threading.local()
        self.changes = []

    def get_num_threads(self):
        return getattr(self.own, "threads", self.default) if self.threading_layer == "openmp" else self.shared

    def set_num_threads(self, num_threads):
        self.changes.append(num_threads)
        if self.threading_layer == "openmp":
            self.own.threads = num_threads
        else:
            self.shared = num_threads


def in_thread(function):
    thread = threading.Thread(target=function)
    thread.start()
    thread.join(10)


def test_the_smallest_count_asked_for_holds():
    library = Library(4)
    limit = partial(Limit, BlasLimiter([library]))
    with limit(3):
        assert library.shared == 3
        with limit(1):
            assert library.shared == 1
            with limit(2):
                assert library.shared == 1
        assert library.shared == 3
    assert library.shared == 4


def test_nothing_is_set_that_holds_already():
    library = Library(4)
    limit = partial(Limit, BlasLimiter([library]))
    with limit(1), limit(1), limit(2):
        pass
    assert library.changes == [1, 4]


def test_a_limit_is_never_raised_above_what_the_user_allowed():
    library = Library(1)
    with Limit(BlasLimiter([library]), 8):
        assert library.shared == 1


def test_an_error_inside_lifts_the_limit():
    library = Library(4)
    with pytest.raises(KeyError), Limit(BlasLimiter([library]), 1):
        raise KeyError
    assert library.shared == 4


def test_whichever_thread_leaves_last_lifts_the_limit():
    library = Library(4)
    limit = partial(Limit, BlasLimiter([library]))
    first, second = ExitStack(), ExitStack()
    in_thread(lambda: first.enter_context(limit(1)))
    second.enter_context(limit(1))
    in_thread(first.close)
    assert library.shared == 1
    in_thread(second.close)
    assert library.shared == 4


def test_a_library_with_a_setting_for_each_thread_is_set_in_the_thread_that_asks():
    library = Library(4, layer="openmp")
    limit = partial(Limit, BlasLimiter([library]))
    seen = []

    def other():
        seen.append(library.get_num_threads())
        with limit(1):
            seen.append(library.get_num_threads())
        seen.append(library.get_num_threads())

    with limit(2):
        in_thread(other)
        assert library.get_num_threads() == 2
    assert seen == [4, 1, 4]


def run_with_two_blas_threads(script):
    environment = {k: v for k, v in os.environ.items() if not k.endswith("_NUM_THREADS")}
    environment |= {"OPENBLAS_NUM_THREADS": "2", "MKL_NUM_THREADS": "2", "OMP_NUM_THREADS": "2"}
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_the_loaded_libraries_obey_threads_that_overlap():
    counts = run_with_two_blas_threads(
        """
        import threading
        from concurrent.futures import ThreadPoolExecutor
        from contextlib import ExitStack
        import scipy.linalg
        from threadpoolctl import ThreadpoolController
        from nystrom.engine import blas_threads

        def counts():
            return sorted({info["num_threads"] for info in ThreadpoolController().select(user_api="blas").info()})

        pools = [ThreadPoolExecutor(1) for _ in range(3)]
        limits = [ExitStack() for _ in range(3)]
        enter = lambda i: pools[i].submit(lambda: limits[i].enter_context(blas_threads(1))).result()
        leave = lambda i: pools[i].submit(limits[i].close).result()
        before = counts()
        for act, i in ((enter, 0), (enter, 1), (leave, 0), (enter, 2), (leave, 1), (leave, 2), (enter, 1)):
            act(i)
            print(*counts())
        leave(1)
        assert counts() == before, counts()
        """
    )
    assert counts[:5] == ["1"] * 5
    assert counts[6] == "1"
    assert counts[5] in {"1", "2"}  # one core, or two: as before


def test_fits_in_threads_of_one_process_have_the_same_bits():
    pytest.importorskip("dask", reason="the threads are Dask's")
    pytest.importorskip("distributed")
    different = run_with_two_blas_threads(
        """
        import dask.array as da
        import numpy as np
        from nystrom import Nystroem
        from nystrom.rows import as_blocks

        X = da.random.default_rng(0).normal(size=(20_000, 10), chunks=(4_096, 10))
        here = as_blocks(X.compute(), block_rows=4_096)
        make = lambda rows: Nystroem(n_components=20, random_state=0).fit(rows).projection_
        first = make(here)
        print(sum(not np.array_equal(make(rows), first) for _ in range(12) for rows in (here, X)))
        """
    )
    assert different == ["0"]


def test_many_threads_at_once_leave_the_setting_as_it_was():
    library = Library(4)
    limit = partial(Limit, BlasLimiter([library]))

    def work():
        for _ in range(200):
            with limit(1):
                assert library.shared == 1

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert library.shared == 4


def test_the_limit_of_the_process_is_shared():
    with blas_threads(1), blas_threads(2):
        from threadpoolctl import ThreadpoolController

        assert {info["num_threads"] for info in ThreadpoolController().select(user_api="blas").info()} == {1}


def test_a_limit_that_is_freed_before_its_end_is_lifted():
    library = Library(4)
    limit = Limit(BlasLimiter([library]), 1)
    limit.__enter__()
    assert library.shared == 1
    del limit
    assert library.shared == 4


def test_a_limit_may_be_released_again():
    library = Library(4)
    limiter = partial(Limit, BlasLimiter([library]))
    with limiter(2):
        limit = limiter(1)
        with limit:
            pass
        limit.release()
        assert library.shared == 2
    assert library.shared == 4


@pytest.mark.parametrize("strike", range(1, 7))
def test_an_interrupt_at_any_change_of_a_setting_restores_all(strike):
    libraries = [Library(4), Library(3)]
    seen = []

    def interrupt_once(library, original):
        def set_num_threads(count):
            original(count)
            seen.append(count)
            if len(seen) == strike:
                raise KeyboardInterrupt

        library.set_num_threads = set_num_threads

    for library in libraries:
        interrupt_once(library, library.set_num_threads)
    limiter = partial(Limit, BlasLimiter(libraries))
    for _ in range(2):
        try:
            with limiter(2), limiter(1):
                pass
        except KeyboardInterrupt:
            pass
        assert [library.shared for library in libraries] == [4, 3]


ALGEBRA = """
    import numpy as np, scipy.linalg, threadpoolctl
    from threadpoolctl import ThreadpoolController
    import nystrom, nystrom.linalg
    from nystrom.engine.threads import blas_threads

    libraries = ThreadpoolController().select(user_api="blas")
    seen = set()
    original = np.linalg.eigh

    def eigh(*args, **kwargs):
        seen.update(info["num_threads"] for info in libraries.info())
        return original(*args, **kwargs)

    np.linalg.eigh = eigh
    rng = np.random.default_rng(0)
    nystrom.linalg._SMALL_ORDER = 40  # so that small matrices are not small
    X = rng.normal(size=(90, 30)); y = rng.normal(size=90)

    def most(function):
        seen.clear()
        function()
        return max(seen)
"""


def test_algebra_between_passes_has_one_thread():
    script = (
        ALGEBRA
        + """
    settings = dict(landmarks=X, gamma=2.0, n_jobs=2)
    print(most(lambda: nystrom.Nystroem(n_components=85, **settings).fit(X)))
    print(most(lambda: nystrom.KernelPCA(85, **settings).fit(X)))
    print(most(lambda: nystrom.kernel_eigh(X, n_components=85, **settings)))
    ridge = nystrom.KernelRidge(**settings)
    print(most(lambda: ridge.fit(X, y)))
    print(*{info["num_threads"] for info in libraries.info()})
    """
    )
    assert run_with_two_blas_threads(script) == ["1", "1", "1", "1", "2"]


def test_a_limit_of_the_user_holds_for_the_small_algebra():
    script = (
        ALGEBRA
        + """
    with threadpoolctl.threadpool_limits(1, user_api="blas"):
        print(most(lambda: nystrom.Nystroem(n_components=85, landmarks=X, gamma=2.0).fit(X)))
    """
    )
    assert run_with_two_blas_threads(script) == ["1"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_child_forked_inside_a_limit_has_its_threads_back():
    script = """
    import os, threading, warnings
    import scipy.linalg
    from threadpoolctl import ThreadpoolController
    from nystrom.engine.threads import blas_threads

    warnings.simplefilter("ignore")
    libraries = ThreadpoolController().select(user_api="blas")
    counts = lambda: sorted({info["num_threads"] for info in libraries.info()})

    def in_child(check):
        child = os.fork()
        if child == 0:
            os._exit(0 if check() else 1)
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

    def check():
        restored = counts() == [2]
        with blas_threads(1):
            limited = counts() == [1]
        return restored and limited and counts() == [2]

    entered, leave = threading.Event(), threading.Event()
    def hold():
        with blas_threads(1):
            entered.set()
            leave.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    entered.wait()
    print(in_child(check))
    leave.set()
    thread.join()
    with blas_threads(1):
        print(in_child(check), *counts())
    print(in_child(check), *counts())
    """
    assert run_with_two_blas_threads(script) == ["0", "0", "1", "0", "2"]
