import gc
import threading

import numpy as np
import pytest
from support import relative, tiny

import linnet


@pytest.fixture(scope="module", params=["linear", "softmax", "local"])
def model(request):
    return linnet.random_model(tiny(attention__family=request.param), seed=2)


def test_streams_are_the_parallel_form(model):
    session = model.session(3, threads=2)
    for i in range(3):
        session.begin(i, seed=10 + i)
    drawn = np.stack([session.step() for _ in range(24)], 1)
    assert drawn.shape == (3, 24) and session.position(1) == 24
    logits = model.logits(drawn)
    follower = model.session(3)
    for position in range(24):
        for i in range(3):
            assert relative(follower.logits(i), logits[i, position]) < 1e-4
        follower.observe(drawn[:, position])


def test_prefill_is_observing(model):
    tokens = np.arange(20) % 11
    one, other = model.session(2), model.session(2)
    one.prefill(0, tokens)
    one.prefill([1], [tokens])
    for token in tokens:
        other.observe([token], [0])
    assert one.position(0) == one.position(1) == other.position(0) == 20 and other.position(1) == 0
    assert relative(one.logits(0), other.logits(0)) < 1e-4
    assert np.array_equal(one.logits(0), one.logits(1))


def test_saved_streams_go_on(model):
    session = model.session(2)
    session.begin(0, seed=5, temperature=0.9, top_k=5, top_p=0.95)
    for _ in range(6):
        session.step([0])
    saved = session.save(0)
    assert isinstance(saved, bytes)
    session.fork(1, 0, seed=5)
    expected = [int(session.step([0])[0]) for _ in range(10)]
    forked = [int(session.step([1])[0]) for _ in range(10)]
    other = model.session(1)
    other.restore(0, saved)
    assert [int(other.step()[0]) for _ in range(10)] == expected == forked


def test_damaged_bytes_are_refused_and_change_nothing(model):
    session = model.session(1)
    session.step()
    saved = bytearray(session.save())
    before = session.save()
    saved[len(saved) // 2] ^= 1
    for damaged in (saved, saved[:-3], b"", b"x" * 100):
        with pytest.raises(linnet.Error, match="expected"):
            session.restore(0, damaged)
    assert session.save() == before
    with pytest.raises(TypeError, match="expected bytes, got str"):
        session.restore(0, "text")


def test_resize_keeps_streams(model):
    session = model.session(2)
    session.step()
    saved = session.save(1)
    session.resize(5)
    assert session.streams == 5 and session.save(1) == saved and session.position(4) == 0
    session.resize(1)
    with pytest.raises(linnet.UsageError, match="stream in 0 … 0, got 1"):
        session.position(1)


def test_logits_are_processed(model):
    session, twin = (model.session(5, threads=2) for _ in range(2))
    seen = {}

    def only_three(stream, field, logits):
        assert field == 0 and logits.dtype == np.float32
        seen[stream] = logits.copy()
        logits[np.arange(len(logits)) != 3] = -np.inf

    drawn, chances = session.step(process_logits=only_three, return_log_probabilities=True)
    assert (drawn == 3).all() and drawn.dtype == np.int32 and chances.dtype == np.float32
    for stream in range(5):
        assert np.array_equal(seen[stream], twin.logits(stream))
        assert abs(chances[stream] - np.log(twin.probabilities(stream)[3])) < 1e-4
    twin.observe(drawn)
    assert all(session.save(i) == twin.save(i) for i in range(5))
    tokens, chances = session.step([1, 3], return_log_probabilities=True)
    assert np.array_equal(tokens, twin.step([1, 3])) and (chances < 0).all()


def test_a_function_that_fails_ends_its_stream(model):
    session = model.session(3, threads=2)

    def fails(stream, field, logits):
        if stream == 1:
            raise RuntimeError("no rule")

    with pytest.raises(RuntimeError, match="no rule"):
        session.step(process_logits=fails)
    assert [session.can_continue(i) for i in range(3)] == [True, False, True]
    assert [session.position(i) for i in (0, 2)] == [1, 1]
    session.begin(1)
    with pytest.raises(linnet.UsageError, match="not all -inf, got those in stream 0"):
        session.step([0], process_logits=lambda stream, field, logits: logits.fill(-np.inf))
    with pytest.raises(linnet.UsageError, match="in place and to return None, got .*ndarray"):
        session.step([1], process_logits=lambda stream, field, logits: logits + 1)
    with pytest.raises(linnet.ArgumentTypeError, match="process_logits as a function, got int"):
        session.step([2], process_logits=3)
    # On any of its threads it may not use the session, which waits for it.
    with pytest.raises(linnet.UsageError, match="the one that the call uses"):
        session.step([2], process_logits=lambda stream, field, logits: session.position(2))
    many = model.session(40, threads=3)
    with pytest.raises(linnet.UsageError, match="the one that the call uses"):
        many.step(process_logits=lambda stream, field, logits: many.position(stream))


def test_sampling_of_a_running_stream_changes(model):
    session = model.session(2)
    session.begin(0, temperature=0.5, top_k=4, top_p=0.5, seed=9)
    assert session.sampling() == {"temperature": 0.5, "top_k": 4, "top_p": 0.5, "seed": 9}
    session.step()
    session.fork(1, 0)
    session.set_sampling(1, **session.sampling(0))
    first, second = session.step()
    assert first == second
    session.set_sampling(0, temperature=0)
    assert session.sampling() == {"temperature": 0, "top_k": None, "top_p": 1, "seed": 0}
    best = int(np.argmax(session.logits()))
    assert session.step([0])[0] == best
    with pytest.raises(linnet.UsageError, match="temperature of at least 0"):
        session.set_sampling(temperature=-1)


def test_limit_and_streams_at_it():
    session = linnet.random_model(tiny(model__positions="learned", model__length=4)).session(2)
    assert session.limit == 4
    for _ in range(4):
        session.step([1])
    assert session.can_continue(0) and not session.can_continue(1)
    with pytest.raises(linnet.Error, match="position 4 in stream 1;"):
        session.step()


def test_a_session_keeps_its_model():
    session = linnet.random_model(tiny()).session()
    gc.collect()
    assert session.step().shape == (1,)


def test_threads_of_python_take_turns(model):
    session = model.session(4)
    done = []

    def run(stream):
        for _ in range(12):
            session.step([stream])
        done.append(stream)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(done) == [0, 1, 2, 3] and [session.position(i) for i in range(4)] == [12] * 4


@pytest.mark.parametrize(
    "call",
    [
        lambda s: s.begin(7),
        lambda s: s.begin(-1),
        lambda s: s.begin(0, 3),
        lambda s: s.begin(0, temperature=-1),
        lambda s: s.begin(0, seed=-1),
        lambda s: s.begin(0, top_p=2),
        lambda s: s.step([0, 0]),
        lambda s: s.step([9]),
        lambda s: s.observe([11, 0]),
        lambda s: s.observe([1, 2, 3]),
        lambda s: s.prefill(0, [1] * 25),
        lambda s: s.prefill(0, [-1]),
        lambda s: s.prefill([0, 1], [[1]]),
        lambda s: s.prefill(0, "text"),
        lambda s: s.fork(0, 5),
        lambda s: s.resize(0),
        lambda s: s.resize(-3),
        lambda s: s.logits(2**40),
    ],
)
def test_what_cannot_be_is_a_sentence(model, call):
    session = model.session(2)
    with pytest.raises(linnet.Error, match=r"^\[[a-z_ ]+\] expected .*, got "):
        call(session)
    assert session.step().shape == (2,)
