"""Models of real numbers, classifiers and models with a source: what they compute, and their streams."""

import threading

import numpy as np
import pytest
from support import relative, tiny, uniform

import linnet


def forecaster(**settings):
    return linnet.random_model(tiny(model__vocabulary=0, model__columns=2, model__value_head="student-t", **settings), seed=4)


def filter_model(**settings):
    sizes = {"model__vocabulary": 0, "model__columns": 2, "model__targets": 3, "model__objective": "same-step"}
    return linnet.random_model(tiny(**sizes, **settings), seed=5)


@pytest.fixture(params=["linear", "softmax"])
def family(request):
    return request.param


def test_a_prediction_does_not_see_its_own_step(family):
    model, values = forecaster(attention__family=family), 3 * uniform(1, 2, 20, 2)
    found = model.predict(values)
    assert isinstance(found, linnet.Densities) and found.mean.shape == found.scale.shape == (2, 20, 2)
    assert (found.scale > 0).all() and (found.freedom > 0).all()
    changed = values.copy()
    changed[1, 12:] += 5
    other = model.predict(changed)
    assert np.array_equal(other.mean[1, :13], found.mean[1, :13]) and not np.array_equal(other.mean[1, 13:], found.mean[1, 13:])
    alone = model.predict(values[1])
    assert alone.mean.shape == (20, 2) and relative(alone.mean, found.mean[1]) < 1e-5
    # A row that is not known behind the others asks for what comes next.
    longer = model.predict(np.concatenate([values[1], np.full((1, 2), np.nan)]))
    assert relative(longer.mean[:20], alone.mean) < 1e-5 and np.isfinite(longer.mean[20]).all()


def test_padding_changes_no_prediction():
    model, values = forecaster(), uniform(2, 2, 20, 2)
    expected = model.predict(values[0, :13])
    values[0, 13:] = np.inf
    found = model.predict(values, key_lengths=[13, 20])
    assert relative(found.mean[0, :13], expected.mean) < 1e-5


def test_numbers_that_are_not_known_are_no_padding():
    settings = {"model__objective": "classify", "model__classes": 3, "model__bidirectional": True, "model__length": 16}
    model = linnet.random_model(tiny(model__vocabulary=0, model__columns=2, **settings), seed=6)
    values, labels = uniform(4, 6, 16, 2), np.arange(6) % 3
    values[:, 10:] = np.nan

    def bits(lengths):
        found = [model.classify(values=values[i, : lengths[i]])[labels[i]] for i in range(6)]
        return -np.mean(np.log2(found))

    whole = linnet.evaluate(model, linnet.Dataset(values=values, labels=labels))["bits"]
    assert whole == pytest.approx(bits([16] * 6), rel=1e-5)
    cut = linnet.evaluate(model, linnet.Dataset(values=values, labels=labels, lengths=[10] * 6))["bits"]
    assert cut == pytest.approx(bits([10] * 6), rel=1e-5) and cut != pytest.approx(whole, rel=1e-4)


def test_streams_of_numbers_are_the_parallel_form(family):
    for model in (forecaster(attention__family=family), filter_model(attention__family=family)):
        values = 2 * uniform(3, 3, 15, 2)
        values[1, 4, 0] = np.nan
        session = model.session(3, threads=2)
        assert isinstance(session, linnet.NumberSession) and session.streams == 3
        means = np.stack([session.step(values[:, i]) for i in range(15)], axis=1)
        assert means.shape == (3, 15, session.targets) and session.position(2) == 15
        found = model.predict(values)
        later = found.mean if model.config["model"]["objective"] == "same-step" else found.mean[:, 1:]
        assert relative(means[:, : later.shape[1]], later) < 1e-4
        densities = session.densities(1)
        assert np.array_equal(densities.mean, means[1, -1])


def test_what_comes_first_is_predicted_too():
    model = forecaster()
    session = model.session()
    assert relative(session.densities(0).mean, model.predict(np.full((1, 2), np.nan)).mean[0]) < 1e-5


def test_streams_of_numbers_draw_fork_and_go_on():
    model = forecaster()
    session = model.session(2)
    for row in uniform(4, 6, 2):
        session.step(row, [0])
    mean, scale, freedom = session.densities(0)
    draws = np.stack([session.draw(0, seed) for seed in range(2000)])
    assert np.array_equal(session.draw(0, 7), draws[7]) and np.allclose(session.draw(0, 3, temperature=0), mean)
    assert (np.abs((draws > mean).mean(axis=0) - 0.5) < 0.06).all()
    session.fork(1, 0)
    saved, row = session.save(0), [0.5, -1.0]
    expected = session.step(row, [0])
    assert np.array_equal(session.step(row, [1]), expected)
    other = model.session(threads=1)
    other.restore(0, saved)
    assert other.position(0) == 6 and np.array_equal(other.step(row), expected)
    other.observe(row)
    with pytest.raises(linnet.Error, match="predicted nothing yet"):
        other.densities(0)
    other.begin(0)
    assert other.position(0) == 0 and session.state_bytes(0) == other.state_bytes(0)
    session.resize(3)
    assert session.streams == 3 and session.position(0) == 7 and session.position(2) == 0
    assert np.array_equal(session.step(row, [0]), session.step(row, [1]))


def test_a_stream_that_overflows_ends_alone():
    small = 1e-3 * uniform(6, 8, 24, 2)
    session = linnet.train(tiny(training__steps=1, model__vocabulary=0), linnet.Dataset(values=small)).model.session(3)
    values = small[:3, 0].copy()
    session.step(values)
    values[1] = 3e38  # more deviations than a float holds
    with pytest.raises(linnet.Error, match="finite numbers, got another one in stream 1"):
        session.step(values)
    assert [session.position(i) for i in range(3)] == [2, 1, 2]
    with pytest.raises(linnet.Error, match="failed halfway"):
        session.step(small[:3, 1])
    session.begin(1)
    assert np.isfinite(session.step(small[:3, 1])).all()


def test_a_model_of_the_same_step_has_no_labels():
    model = filter_model()
    with pytest.raises(linnet.UsageError, match="no label for a model without classes, got 1"):
        model.predict(np.zeros((3, 2)), label=1)


def test_threads_take_turns():
    session = forecaster(model__positions="sinusoidal").session(1)
    workers = [threading.Thread(target=lambda: [session.step([1.0, 2.0]) for _ in range(50)]) for _ in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert session.position(0) == 150


def test_models_of_numbers_take_no_tokens():
    model = forecaster()
    for call in (model.logits, model.hidden, model.score, model.fill):
        for tokens in ([1, 2], "text"):
            with pytest.raises(linnet.UsageError, match="a model of tokens, got one of real numbers alone"):
                call(tokens)


def test_classifiers_give_the_probabilities_of_labels():
    labels = np.arange(80) % 2
    starts = np.random.default_rng(8).uniform(0, 6, (80, 1))
    waves = np.sin(np.arange(24) * np.where(labels, 0.9, 0.3)[:, None] + starts)[:, :, None]
    settings = tiny(training__steps=150, model__vocabulary=0, model__objective="classify")
    model = linnet.train(settings, linnet.Dataset(values=waves, labels=labels)).model
    found = model.classify(values=waves)
    assert found.shape == (80, 2) and np.allclose(found.sum(axis=1), 1, atol=1e-5)
    assert (found.argmax(axis=1) == labels).mean() > 0.9
    assert relative(model.classify(values=waves[3]), found[3]) < 1e-5
    short = model.classify(values=np.where(np.arange(24)[:, None] < 10, waves[:1], np.nan), key_lengths=[10])
    assert relative(short[0], model.classify(values=waves[0, :10])) < 1e-5
    of_tokens = linnet.random_model(tiny(model__objective="classify", model__classes=3), seed=1)
    tokens = np.arange(48).reshape(2, 24) % 11
    assert of_tokens.classify(tokens).shape == (2, 3) and of_tokens.classify(tokens[0]).shape == (3,)


def test_names_of_labels_are_kept(tmp_path):
    model = linnet.random_model(tiny(model__objective="classify", model__classes=3), seed=1)
    assert model.class_names == ()
    model.save(tmp_path)
    (tmp_path / "labels.json").write_text('["calm", "schräg", "fast"]')
    named = linnet.load(tmp_path)
    assert named.class_names == ("calm", "schräg", "fast")
    named.save(tmp_path / "copy")
    assert linnet.load(tmp_path / "copy").class_names == named.class_names


def test_tokens_beside_numbers():
    model = linnet.random_model(tiny(model__vocabulary=11, model__fields="11,5", model__columns=2), seed=6)
    tokens, values = np.stack([np.arange(20) % 11, np.arange(20) % 5], axis=1), uniform(5, 20, 2)
    found = model.predict(values, tokens=tokens)
    assert found.mean.shape == (20, 2)
    changed = tokens.copy()
    changed[9, 1] = 4 - changed[9, 1]
    other = model.predict(values, tokens=changed)
    assert np.array_equal(other.mean[:10], found.mean[:10]) and not np.array_equal(other.mean[10:], found.mean[10:])


def test_models_with_a_source():
    settings = tiny(model__encoder_layers=1, model__source_length=9, model__source_vocabulary=7)
    model, source = linnet.random_model(settings, seed=3), [3, 1, 4, 1, 5]
    session = model.session()
    session.begin(0, source=source, seed=2)
    drawn, scores = [], []
    for _ in range(10):
        chances = session.probabilities(0)
        drawn.append(int(session.step()[0]))
        scores.append(np.log(chances[drawn[-1]]))
    assert relative(model.score(drawn, source=source), scores) < 1e-4
    assert model.generate_tokens(2, source=source, length=10, seed=2)[0].tolist() == drawn
    assert model.generate(source=source, length=10, seed=2).tolist() == drawn
    assert not np.allclose(model.score(drawn, source=[6, 6]), scores)


@pytest.mark.parametrize("encoder_layers", [0, 1])
def test_models_of_pairs(encoder_layers):
    more = {"model__encoder_layers": 1, "model__source_length": 9, "model__source_vocabulary": 256} if encoder_layers else {}
    model = linnet.random_model(tiny(model__vocabulary=258, model__positions="none", **more), seed=3)
    text = model.tokenizer
    assert (text.separator, text.end, text.vocabulary) == (256, 257, 258)
    assert text.encode("né").tolist() == [110, 195, 169] and text.decode([110, 256, 195, 169, 257]) == "né"
    rows = model.generate_tokens(40, source="a date", length=30, seed=5, streams=7)
    ended = [row for row in rows if 257 in row[:-1]]
    assert rows.shape == (40, 30) and ended and len(ended) < 40
    for row in ended:
        assert (row[list(row).index(257) :] == 257).all()
    session = model.session()
    for i in (0, 9, 39):
        session.begin(0, source="a date" if encoder_layers else None, seed=5 + i)
        if not encoder_layers:
            session.prefill(0, [*b"a date", 256])
        drawn = [int(session.step()[0]) for _ in range(30)]
        known = drawn[: drawn.index(257) + 1] if 257 in drawn else drawn
        assert rows[i, : len(known)].tolist() == known
    calls = []
    texts = model.generate(40, source="a date", length=30, seed=5, progress=lambda *done: calls.append(done))
    assert texts == [text.decode(row[: list(row).index(257)] if 257 in row else row) for row in rows]
    assert calls[-1] == (1200, 1200)


def test_refusals():
    numbers, tokens = forecaster(), linnet.random_model(tiny(), seed=1)
    decoder = linnet.random_model(tiny(model__encoder_layers=1, model__source_length=9), seed=3)
    session = numbers.session(2)
    for call, part in (
        (lambda: tokens.predict(uniform(1, 5, 2)), "[predict] expected tokens for this model, got none"),
        (lambda: tokens.predict(tokens=[1, 2]), "predicts real numbers"),
        (lambda: numbers.predict(), "[predict] expected values for this model, got none"),
        (lambda: numbers.predict(uniform(1, 5, 2), tokens=[1]), "[predict] expected no tokens for this model, got some"),
        (lambda: numbers.predict(uniform(1, 5, 3)), "[predict] expected values [length, 2] or [batch, length, 2], got [5, 3]"),
        (lambda: numbers.predict(np.full((5, 2), np.inf)), "[predict] expected finite values, got inf"),
        (lambda: numbers.predict(uniform(1, 5, 2), label=3), "no label for a model without classes"),
        (lambda: numbers.predict(uniform(1, 2, 5, 2), key_lengths=[6, 1]), "key lengths in 1"),
        (lambda: numbers.classify(values=uniform(1, 5, 2)), "classif"),
        (lambda: linnet.NumberSession(tokens), "steps are real numbers alone, got one of tokens"),
        (lambda: linnet.Session(numbers), "expected a model of tokens"),
        (lambda: linnet.NumberSession("model"), "expected a linnet.Model, got str"),
        (lambda: session.step(uniform(1, 3, 2)), "[step] expected values [2, 2], got [3, 2]"),
        (lambda: session.step(np.full((2, 2), np.inf)), "[step] expected finite numbers, got inf"),
        (lambda: session.step(uniform(1, 2, 2), [1, 1]), "at most once, got stream 1 twice"),
        (lambda: session.step(uniform(1, 1, 2), [2]), "expected a stream in 0 … 1, got 2"),
        (lambda: session.draw(0, temperature=-1), "[draw] expected a temperature of at least 0 that a float holds, got -1"),
        (lambda: session.restore(0, "text"), "expected bytes, got str"),
        (lambda: session.restore(0, b"text"), "[snapshot] expected"),
        (lambda: decoder.generate(length=5), "expected a source for an encoder–decoder model, got none"),
        (lambda: tokens.generate(source=[1]), "expected no source for a model without an encoder or pairs, got one"),
        (lambda: decoder.session().step(), "expected a stream with a source"),
        (lambda: decoder.session().begin(0, source=[]), "expected a source of at least 1 token, got none"),
        (lambda: decoder.score([1, 2], source=[11]), "[score] expected tokens in 0 … 10, got 11"),
        (lambda: decoder.score([1, 2], source="text"), "[score] expected the tokens of a source, got text"),
        (lambda: decoder.score([1, 2], source=[[1]]), "[score] expected a source [n], got [1, 1]"),
    ):
        with pytest.raises(linnet.Error) as refused:
            call()
        assert part in str(refused.value), str(refused.value)
    assert session.position(0) == 0
