"""What concerns the whole process: instruction sets, locks, memory that is kept, forks."""

import gc
import multiprocessing
import os
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
from support import relative, uniform

import linnet

Q = uniform(1, 2, 50, 3, 16)


def run(code, **variables):
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join(path for path in sys.path if path), **variables)
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)


@pytest.mark.parametrize("name", ["AVX2", "SSE4", "SCALAR", "EMU128"])
def test_every_instruction_set_gives_the_numbers(name, tmp_path):
    np.save(tmp_path / "q.npy", Q)
    code = f"""
import numpy as np, linnet
try:
    linnet.instruction_set()
except linnet.UsageError as error:
    print("refused", error)
    raise SystemExit
q = np.load({str(tmp_path / "q.npy")!r})
np.save({str(tmp_path / "out.npy")!r}, linnet.attention(q, q, q, mask="causal"))
print(linnet.instruction_set())
"""
    done = run(code, LINNET_ISA=name)
    assert done.returncode == 0, done.stderr
    if done.stdout.startswith("refused"):
        assert "expected one of" in done.stdout
        pytest.skip(done.stdout)
    assert done.stdout.strip() == name
    assert relative(np.load(tmp_path / "out.npy"), linnet.attention(Q, Q, Q, mask="causal")) < 1e-5


def test_an_unknown_instruction_set_is_refused():
    done = run("import linnet; linnet.instruction_set()", LINNET_ISA="AVX9")
    assert done.returncode == 1 and "linnet.UsageError: [LINNET_ISA] expected one of" in done.stderr


def test_a_call_releases_the_lock():
    """Another thread counts while one call computes for more than half a second."""
    counted, stop = [0], threading.Event()

    def count():
        while not stop.is_set():
            counted[0] += 1
            time.sleep(0.0005)

    thread = threading.Thread(target=count)
    context = linnet.Context(1)
    linnet.attention(Q, Q, Q, context=context)
    thread.start()
    seconds, length = 0, 4000
    while seconds < 0.5:
        length *= 2  # four times the work
        q = uniform(2, 1, length, 4, 16)
        start, before = time.perf_counter(), counted[0]
        linnet.attention(q, q, q, family="softmax", context=context)
        seconds, during = time.perf_counter() - start, counted[0] - before
    stop.set()
    thread.join()
    assert during > 3


def test_masks_keep_their_arrays_and_let_them_go():
    visible = np.random.default_rng(1).integers(0, 2, (1, 50, 50)).astype(np.uint8)
    expected = linnet.attention(Q, Q, Q, mask=visible)
    mask = linnet.Mask.boolean(visible.copy()).with_key_lengths([50, 50])
    gc.collect()
    junk = [np.ones((1, 50, 50), np.uint8) for _ in range(50)]
    assert np.array_equal(linnet.attention(Q, Q, Q, mask=mask), expected) and len(junk) == 50
    freed = threading.Event()

    class Owner(np.ndarray):
        def __del__(self):
            freed.set()

    mask = linnet.Mask.boolean(visible.copy().view(Owner))
    del mask
    gc.collect()
    assert freed.is_set()


def test_results_outlive_what_made_them():
    def made():
        out, backward = linnet.attention(Q.copy(), Q.copy(), Q.copy(), mask="causal", gradients=True)
        return out, backward

    out, backward = made()
    gc.collect()
    junk = [uniform(i, 2, 50, 3, 16) for i in range(20)]
    found = backward(np.ones_like(out))
    assert np.array_equal(found.q, linnet.attention_gradients(Q, Q, Q, np.ones_like(Q), mask="causal").q) and junk


def in_child(queue):
    queue.put(float(linnet.attention(Q, Q, Q, mask="causal").sum()))


def test_a_forked_child_computes():
    expected = float(linnet.attention(Q, Q, Q, mask="causal").sum())  # the parent has threads now
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    child = context.Process(target=in_child, args=(queue,))
    child.start()
    found = queue.get(timeout=60)
    child.join(60)
    assert child.exitcode == 0 and found == expected
