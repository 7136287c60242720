"""Ctrl-C, forks and threads at random moments: BLAS has its threads back, and the next fit has the same bits."""

import os
import subprocess
import sys
import textwrap

import pytest

pytestmark = pytest.mark.faults

NO_THREADS = 77  # how the script ends where nothing could be seen
PRELUDE = """
    import multiprocessing, os, random, signal, sys, threading, time, warnings
    import numpy as np
    import scipy.linalg
    from threadpoolctl import ThreadpoolController
    from nystrom import Nystroem
    from nystrom.engine.threads import blas_threads

    warnings.simplefilter("ignore")
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
    libraries = ThreadpoolController().select(user_api="blas")
    counts = lambda: sorted({info["num_threads"] for info in libraries.info()})
    X = np.random.default_rng(0).normal(size=(6_000, 5))
    fit = lambda: Nystroem(n_components=5, n_jobs=2, random_state=0).fit(X).projection_
    if counts() != [2]:
        sys.exit(77)
    first = fit()
    random.seed(0)
"""


def run(script):
    environment = {k: v for k, v in os.environ.items() if not k.endswith("_NUM_THREADS")}
    environment |= {"OPENBLAS_NUM_THREADS": "2", "MKL_NUM_THREADS": "2", "OMP_NUM_THREADS": "2"}
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(PRELUDE) + textwrap.dedent(script)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
    )
    if done.returncode == NO_THREADS:
        pytest.skip("BLAS has one thread only: this process is bound to one processor")
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.split()


@pytest.mark.parametrize("work", ["limit()", "fit()"], ids=["limiter", "fit"])
def test_an_interrupt_at_any_moment_gives_the_threads_back(work):
    lost, tried = run(
        f"""
        def limit():
            with blas_threads(1):
                pass

        def work():
            while True:
                {work}

        lost = 0
        for _ in range(600):
            timer = threading.Timer(random.uniform(0.0005, 0.01), os.kill, (os.getpid(), signal.SIGINT))
            try:
                timer.start()
                work()
            except KeyboardInterrupt:
                pass
            timer.join()
            for _ in range(100):  # a block under way may end after the interrupt
                if counts() == [2]:
                    break
                time.sleep(0.01)
            else:
                lost += 1
        assert np.array_equal(fit(), first)
        print(lost, 600)
        """
    )
    assert (lost, tried) == ("0", "600")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_children_forked_during_fits_have_their_threads_and_the_same_bits():
    lost, tried = run(
        """
        stop = threading.Event()

        def busy():
            while not stop.is_set():
                fit()

        threads = [threading.Thread(target=busy) for _ in range(2)]
        for thread in threads:
            thread.start()
        lost = 0
        for _ in range(40):
            time.sleep(random.uniform(0, 0.02))
            child = os.fork()
            if child == 0:
                signal.alarm(60)
                os._exit(0 if counts() == [2] and np.array_equal(fit(), first) and counts() == [2] else 1)
            lost += os.waitpid(child, 0)[1] != 0
        stop.set()
        for thread in threads:
            thread.join()
        assert counts() == [2]
        print(lost, 40)
        """
    )
    assert (lost, tried) == ("0", "40")


def test_fits_in_many_threads_have_the_same_bits_and_leave_the_threads_as_they_were():
    (different,) = run(
        """
        different = []
        def work():
            for _ in range(10):
                if not np.array_equal(fit(), first):
                    different.append(1)
        threads = [threading.Thread(target=work) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert counts() == [2]
        print(len(different))
        """
    )
    assert different == "0"
