import json
import subprocess
import threading

import numpy as np
import pytest
from support import REPOSITORY, counting, relative, tiny, uniform

import linnet


def log_softmax(logits):
    logits = logits.astype(np.float64)
    shifted = logits - logits.max(-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))


def test_the_configuration_is_that_of_the_file(digits):
    found = json.loads((REPOSITORY / "models/digits/config.json").read_text())
    for table in ("model", "attention", "image"):
        for key, value in found[table].items():
            assert digits.config[table][key] == value
    assert (digits.vocabulary, digits.classes, digits.length, digits.image) == (16, 10, 256, (16, 16, 1))
    assert digits.parameter_count == 219152
    digits.config["model"]["layers"] = 7  # a copy
    assert digits.config["model"]["layers"] == 4


def test_pictures_are_those_of_the_program(digits, program, tmp_path):
    command = [program, "generate", REPOSITORY / "models/digits", "--count", "5", "--label", "3,1", "--seed", "7"]
    command += ["--temperature", "0.7", "--streams", "2", "--json", "--out", tmp_path / "out.png"]
    printed = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    expected = np.array([result["tokens"] for result in printed["results"]])
    drawn = digits.generate_tokens(5, label=[3, 1], seed=7, temperature=0.7, streams=3)
    assert drawn.dtype == np.int32 and np.array_equal(drawn, expected)
    pixels = digits.generate(5, label=[3, 1], seed=7, temperature=0.7)
    assert pixels.shape == (5, 16, 16) and pixels.dtype == np.uint8
    assert np.array_equal(pixels.reshape(5, -1), (expected * 255 + 7) // 15)


def test_one_picture_and_upper_halves(digits):
    one = digits.generate(label=4, seed=2)
    assert one.shape == (16, 16)
    completed = digits.generate(2, label=4, seed=2, prompt=one[:8])
    assert np.array_equal(completed[:, :8], np.stack([one[:8]] * 2))
    assert np.array_equal(completed[0], one)  # the draws depend on seed and position


def test_progress_counts_tokens(digits):
    seen = []
    digits.generate(3, streams=2, progress=lambda done, total: seen.append((done, total)))
    assert seen[-1] == (3 * 256, 3 * 256) and len(seen) == 2 * 256


def test_scores_are_logits_and_session_probabilities(digits):
    tokens = digits.generate_tokens(2, label=[8, 2], seed=1)
    logits = digits.logits(tokens, [8, 2])
    assert logits.shape == (2, 256, 16) and logits.dtype == np.float32
    for i, label in enumerate([8, 2]):
        scores = digits.score(tokens[i], label)
        wanted = np.take_along_axis(log_softmax(logits[i]), tokens[i][:, None], 1)[:, 0]
        assert np.abs(scores - wanted).max() < 1e-4
    session = digits.session()
    session.begin(0, 8)
    for position in range(20):
        assert relative(session.logits(), logits[0, position]) < 1e-4
        assert abs(session.probabilities().sum() - 1) < 1e-5
        session.observe(tokens[0, position : position + 1])
    assert digits.hidden(tokens[0], 8).shape == (256, 64)


def test_hidden_rows_of_every_kind_of_step():
    """Rows of a model of the next step do not depend on their own step, those of others do."""
    random = np.random.default_rng(6)
    tokens, numbers = random.integers(0, 5, (2, 12)), uniform(3, 2, 12, 2)
    fields = np.stack([tokens, tokens % 3], axis=2)

    def first_row_that_differs(model, **steps):
        others = {name: array.copy() for name, array in steps.items()}
        for array in others.values():
            array[:, 7] = (array[:, 7] + 1) % 3
        rows = [model.hidden(**given) for given in (steps, others)]
        assert rows[0].shape == (2, 12, 16) and rows[0].dtype == np.float32
        assert relative(model.hidden(**{name: array[1] for name, array in steps.items()}), rows[0][1]) < 1e-5
        return int(np.argmax(np.abs(rows[0] - rows[1]).max(axis=(0, 2)) > 0))

    def made(**settings):
        return linnet.random_model(tiny(model__length=12, **settings))

    assert first_row_that_differs(made(model__vocabulary=5), tokens=tokens) == 8
    assert first_row_that_differs(made(model__vocabulary=5, model__fields="5,3"), tokens=fields) == 8
    assert first_row_that_differs(made(model__vocabulary=0, model__columns=2), values=numbers) == 8
    assert first_row_that_differs(made(model__vocabulary=5, model__columns=2), tokens=tokens, values=numbers) == 8
    labels = {"model__objective": "classify", "model__classes": 2}
    assert first_row_that_differs(made(model__vocabulary=5, **labels), tokens=tokens) == 7
    assert first_row_that_differs(made(model__vocabulary=0, model__columns=2, **labels), values=numbers) == 7
    assert first_row_that_differs(made(model__vocabulary=5, model__fields="5,3", model__objective="masked"), tokens=fields) == 0
    masked = made(model__vocabulary=5, model__fields="5,3", model__objective="masked")
    hidden = np.where(np.arange(12)[:, None] == 4, -1, fields[0])
    assert not np.array_equal(masked.hidden(hidden), masked.hidden(fields[0]))
    padded = made(model__vocabulary=0, model__columns=2)
    rows = padded.hidden(values=numbers, key_lengths=[12, 5])
    assert relative(rows[1, :5], padded.hidden(values=numbers[1, :5])) < 1e-5


def test_a_saved_model_is_the_same(digits, tmp_path):
    digits.save(tmp_path / "copy")
    copy = linnet.load(tmp_path / "copy")
    tokens = np.arange(30) % 16
    assert np.array_equal(copy.logits(tokens, 1), digits.logits(tokens, 1))
    other = linnet.load(tmp_path / "copy", {"attention": {"feature_map": "relu", "epsilon": np.float32(0.5)}})
    assert other.config == linnet.load(tmp_path / "copy", {"attention.feature_map": "relu", "attention.epsilon": 0.5}).config
    assert other.config["attention"]["feature_map"] == "relu"
    assert not np.array_equal(other.logits(tokens, 1), digits.logits(tokens, 1))


def test_tokens_and_text():
    model = linnet.random_model(tiny(), seed=1)
    drawn = model.generate(3, prompt=[1, 2, 3], length=5, seed=4)
    assert drawn.shape == (3, 8) and (drawn[:, :3] == [1, 2, 3]).all()
    assert model.generate(prompt=[1], length=4).shape == (5,)
    writer = linnet.random_model(tiny(model__vocabulary=256, model__positions="sinusoidal"))
    text = writer.generate(prompt="Once é", length=10, seed=3)
    assert isinstance(text, str) and text.startswith("Once é")
    assert len(writer.generate(2, length=10)) == 2
    assert writer.score("abc").shape == (3,) and writer.logits(b"abc").shape == (3, 256)


def test_a_masked_model_fills():
    model = linnet.random_model(tiny(model__objective="masked"))
    tokens = counting(2, 24, 11)
    tokens[0, 3] = tokens[1, 7] = tokens[1, 8] = -1
    filling = model.fill(tokens)
    assert filling.positions.tolist() == [3, 24 + 7, 24 + 8] and filling.tokens.shape == (3,)
    assert filling.probabilities.shape == (3, 11) and np.abs(filling.probabilities.sum(-1) - 1).max() < 1e-5
    rows = log_softmax(model.logits(tokens).reshape(-1, 11)[filling.positions])
    assert np.abs(np.exp(rows) - filling.probabilities).max() < 1e-5
    with pytest.raises(linnet.UsageError, match="expected"):
        model.generate()


def test_padding_has_no_influence():
    model = linnet.random_model(tiny(model__objective="masked"))
    tokens = counting(2, 24, 11)
    other = tokens.copy()
    other[0, 10:] = 5
    found = [model.logits(array, key_lengths=[10, 24]) for array in (tokens, other)]
    assert np.array_equal(found[0][0, :10], found[1][0, :10]) and np.array_equal(found[0][1], found[1][1])


def test_threads_share_a_model(digits):
    expected = digits.generate_tokens(2, seed=5)
    found = [None] * 4

    def draw(i):
        found[i] = digits.generate_tokens(2, seed=5, threads=1)

    threads = [threading.Thread(target=draw, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(np.array_equal(tokens, expected) for tokens in found)


def test_other_python_code_runs_while_one_context_computes(digits):
    """One context, many threads: their calls take turns and other threads go on."""
    context, tokens = linnet.Context(1), np.arange(256) % 16
    expected, found = digits.logits(tokens, 1), []
    threads = [
        threading.Thread(target=lambda: found.append(digits.logits(tokens, 1, context=context))) for _ in range(6)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 6 and all(np.array_equal(logits, expected) for logits in found)


def test_the_vocabulary_follows_from_fields_and_columns():
    sizes = {"layers": 1, "heads": 2, "width": 8, "feed_forward": 16, "length": 6}
    assert linnet.random_model({"model": sizes | {"fields": "5,7"}}).fields == (5, 7)
    numbers = linnet.random_model({"model": sizes | {"columns": 2}})
    assert numbers.vocabulary == 0 and numbers.predict(np.zeros((6, 2))).mean.shape == (6, 2)
    linnet.Trainer({"model": sizes | {"columns": 2}}).step_with_targets(
        np.full((1, 6), -1), values=np.zeros((1, 6, 2)), value_targets=np.ones((1, 6, 2))
    )
