import os
import signal
import subprocess
import sys
import threading
import time
import warnings

import numpy as np
import pytest
from support import counting, relative, tiny, uniform

import linnet


def test_training_on_arrays_lowers_the_loss():
    tokens = counting(200, 24, 11)
    result = linnet.train(tiny(training__steps=60, training__evaluate_every=30), tokens[:160], validation=tokens[160:])
    assert result.finished and result.step == 60
    assert result.steps.tolist() == list(range(1, 61)) and result.evaluation_steps.tolist() == [30, 60]
    assert result.bits[0] > 3 and result.bits[-1] < 0.6 and result.evaluation_bits[-1] < 0.6
    assert (result.best_step, result.best_bits) == (60, result.evaluation_bits.min())
    assert result.evaluation["bits"] == result.evaluation_bits[-1] and result.learning_rate.max() <= 1e-2
    again = linnet.evaluate(result.model, tokens[160:], accuracy=True)
    assert again["bits"] == result.evaluation_bits[-1] and again["accuracy"] > 0.9
    continued = result.model.generate(prompt=[4, 5, 6], length=8, temperature=0)
    assert continued.tolist() == [(4 + i) % 11 for i in range(11)]


def test_training_is_reproducible_for_any_number_of_threads():
    tokens, settings = counting(50, 24, 11), tiny(training__steps=6)
    one, two = (linnet.train(settings, tokens, context=linnet.Context(threads)) for threads in (1, 3))
    assert np.array_equal(one.bits, two.bits)
    assert np.array_equal(one.model.logits(tokens[0]), two.model.logits(tokens[0]))
    other = linnet.train(tiny(training__steps=6, training__seed=4), tokens)
    assert not np.array_equal(one.bits, other.bits)


def test_what_is_stopped_before_an_evaluation_has_no_best():
    result = linnet.train(tiny(training__steps=6), counting(50, 24, 11), callbacks={"should_stop": lambda: True})
    assert not result.finished and result.evaluation is None and result.best_step is None and result.best_bits is None


def test_labels_decide_what_is_drawn():
    labels = np.arange(120) % 3
    tokens = np.repeat(labels[:, None], 24, 1)  # a class is its token
    result = linnet.train(tiny(training__steps=50), (tokens, labels))
    assert result.model.classes == 3
    drawn = result.model.generate(3, temperature=0)
    assert (drawn == np.arange(3)[:, None]).all()


def test_pictures_are_examples():
    pixels = np.zeros((40, 4, 6), np.uint8)
    pixels[:, :, 3:] = 255
    data = linnet.Dataset.images(pixels, levels=4)
    assert len(data) == 40 and data.length == 24 and data[0].tolist() == [0, 0, 0, 3, 3, 3] * 4
    result = linnet.train(tiny(training__steps=40, model__vocabulary=4), data)
    assert result.model.image == (4, 6, 1)
    assert np.array_equal(result.model.generate(temperature=0), pixels[0])


def test_shorter_examples_end_in_padding():
    tokens = counting(60, 24, 11)
    lengths = np.random.default_rng(1).integers(5, 25, 60)
    data = linnet.Dataset(tokens, lengths=lengths, vocabulary=11)
    assert (data[3] == np.where(np.arange(24) < lengths[3], tokens[3], -1)).all()
    noise = np.where(np.arange(24) < lengths[:, None], tokens, 7)  # what stands in the padding does not matter
    sets = [linnet.Dataset(array, lengths=lengths, vocabulary=11) for array in (tokens, noise)]
    runs = [linnet.train(tiny(training__steps=5), data) for data in sets]
    assert np.array_equal(runs[0].bits, runs[1].bits)


def test_steps_of_several_fields_and_of_numbers_are_examples():
    notes = np.stack([counting(60, 24, 11), counting(60, 24, 11) % 5], axis=2)
    data = linnet.Dataset(notes)
    assert data.fields == (11, 5) and data.columns == 0 and np.array_equal(data[7], notes[7])
    result = linnet.train(tiny(training__steps=30, model__vocabulary=0), notes)
    assert result.model.config["model"]["fields"] == "11,5" and result.bits[-1] < result.bits[0]
    assert len(linnet.evaluate(result.model, notes)["field_bits"]) == 2

    waves = np.sin(np.arange(24) * 0.4 + np.random.default_rng(2).uniform(0, 6, (60, 1)))[:, :, None] * 3 + 10
    result = linnet.train(tiny(training__steps=60, model__vocabulary=0), waves)
    assert result.model.config["model"]["columns"] == 1
    measured = linnet.evaluate(result.model, waves)
    assert measured["squared_error"] < 1 and measured["naive_squared_error"] > 0
    both = linnet.Dataset(notes, values=waves, vocabulary=[11, 6])
    assert both.fields == (11, 6) and both.columns == 1
    assert np.array_equal(both.values(3), waves[3].astype(np.float32))
    measured = linnet.evaluate(linnet.train(tiny(training__steps=2, model__vocabulary=0), both).model, both)
    assert measured["token_bits"] > 0 and np.isfinite(measured["value_nats"])


def test_padding_is_in_no_statistics():
    """Neither in the means and deviations of columns nor in the size of the vocabulary."""
    numbers = np.random.default_rng(4).normal(20, 1, (40, 30, 2)).astype(np.float32)
    lengths = np.random.default_rng(5).integers(3, 20, 40)
    padding = np.arange(30) >= lengths[:, None]
    junk, tokens = numbers.copy(), np.full((40, 30), 4)
    junk[padding], tokens[padding] = np.inf, 1000
    assert linnet.Dataset(tokens, lengths=lengths).vocabulary == 5
    settings = tiny(training__steps=2, model__vocabulary=0, model__length=30)
    runs = [linnet.train(settings, linnet.Dataset(values=values, lengths=lengths)) for values in (numbers, junk)]
    assert np.array_equal(runs[0].bits, runs[1].bits) and np.isfinite(runs[0].bits).all()
    measured = linnet.evaluate(runs[0].model, linnet.Dataset(values=junk, lengths=lengths))
    counted = numbers[~padding].astype(np.float64)
    apart = (counted - counted.mean(0)) / counted.std(0)
    assert measured["squared_error"] < 4 * (apart**2).mean()


def test_windows_are_checked_as_one_sequence():
    """A million windows of a thousand steps: neither their memory nor their time."""
    numbers, tokens = np.zeros((10**6, 2), np.float32), np.zeros(10**6, np.int32)
    numbers[:, 1] = np.arange(10**6) % 7
    assert len(linnet.Dataset.windows(tokens, values=numbers, length=1000)) == 10**6 - 999
    numbers[-1, 0] = np.inf
    with pytest.raises(linnet.UsageError, match="infinity"):
        linnet.Dataset.windows(values=numbers, length=1000)
    tokens[-1] = 9
    with pytest.raises(linnet.UsageError, match="got 9"):
        linnet.Dataset.windows(tokens, length=1000, vocabulary=9)


def test_models_of_several_fields_draw_steps():
    notes = np.stack([counting(40, 24, 11), counting(40, 24, 11) % 5], axis=2)
    model = linnet.train(tiny(training__steps=2, model__vocabulary=0), notes).model
    assert model.fields == (11, 5)
    session = linnet.Session(model, 3)
    drawn = session.step()
    assert drawn.shape == (3, 2) and (drawn < [11, 5]).all() and (drawn >= 0).all()
    assert session.step([1]).shape == (1, 2)
    session.observe(drawn)
    session.prefill(2, notes[0, :3])
    assert session.position(2) == 5
    scores = model.score(notes[0])
    assert scores.shape == (24, 2)
    measured = linnet.evaluate(model, notes[:1])
    assert -scores.mean(0) / np.log(2) == pytest.approx(measured["field_bits"], rel=1e-5)
    with pytest.raises(linnet.UsageError, match="one token per step"):
        model.generate()


def test_classifiers_of_real_numbers_learn_and_keep_their_weights():
    random = np.random.default_rng(8)
    labels = np.arange(80) % 2
    waves = np.sin(np.arange(24) * np.where(labels, 0.9, 0.3)[:, None] + random.uniform(0, 6, (80, 1)))[:, :, None]
    settings = tiny(training__steps=150, model__vocabulary=0, model__objective="classify")
    result = linnet.train(settings, linnet.Dataset(values=waves, labels=labels))
    # Of the model, whose weights are taken out of the trainer, and not of the trainer itself.
    measured = linnet.evaluate(result.model, linnet.Dataset(values=waves, labels=labels))
    assert measured["accuracy"] > 0.9 and measured["bits"] < 0.6


def test_windows_of_long_sequences():
    notes, numbers = np.arange(40, dtype=np.int32).reshape(20, 2) % 7, np.arange(40.0).reshape(20, 2)
    data = linnet.Dataset.windows(notes, values=numbers, length=6)
    assert len(data) == 15 and data.length == 6 and data.fields == (7, 7)
    assert np.array_equal(data[4], notes[4:10]) and np.array_equal(data.values(4), numbers[4:10])
    assert np.array_equal(linnet.Dataset.windows(notes[:, 0], length=6)[14], notes[14:, 0])
    short = linnet.Dataset(values=numbers[None], lengths=[3])
    assert np.isnan(short.values(0)[3:]).all() and not np.isnan(short.values(0)[:3]).any()


def test_arrays_of_steps_that_do_not_fit_are_refused():
    notes, numbers = np.zeros((4, 6, 2), np.int32), np.zeros((4, 6, 1))
    for make, part in (
        (lambda: linnet.Dataset(), "tokens or values, got neither"),
        (lambda: linnet.Dataset(np.zeros((2, 2, 2, 2), np.int32)), "got [2, 2, 2, 2]"),
        (lambda: linnet.Dataset(notes, vocabulary=[3]), "each of 2 fields, got 1"),
        (lambda: linnet.Dataset(notes + 3, vocabulary=[3, 9]), "tokens in 0 … 2, got 3"),
        (lambda: linnet.Dataset(notes, values=numbers[:3]), "values of 4 examples and 6 steps, got [3, 6, 1]"),
        (lambda: linnet.Dataset(values=numbers[0]), "values [examples, steps, columns]"),
        (lambda: linnet.Dataset(values=numbers + np.inf), "infinity"),
        (lambda: linnet.Dataset(values=numbers * np.nan), "NaN alone"),
        (lambda: linnet.Dataset.windows(notes[0], length=7), "length in 1 ... 6"),
        (lambda: linnet.Dataset.windows(values=notes, length=2), "values [steps, columns]"),
    ):
        with pytest.raises(linnet.UsageError) as error:
            make()
        assert part in str(error.value)


def test_steps_that_do_not_count_are_read_alone():
    """The loss of an answer after a prompt is that of its tokens alone."""
    tokens = np.random.default_rng(6).integers(0, 11, (40, 24))
    tokens[:, 12:] = tokens[:, :12]
    counted = np.broadcast_to(np.arange(24) >= 12, tokens.shape)
    data = linnet.Dataset(tokens, counted=counted)
    model = linnet.train(tiny(training__steps=3), data).model
    answers = np.stack([model.score(row)[12:] for row in tokens])
    measured = linnet.evaluate(model, data)
    assert measured["tokens"] == 40 * 12
    assert measured["bits"] == pytest.approx(-answers.mean() / np.log(2), rel=1e-5)
    lengths = np.full(40, 18)
    assert linnet.evaluate(model, linnet.Dataset(tokens, lengths=lengths, counted=counted))["tokens"] == 40 * 6


def test_inputs_have_outputs_at_the_same_step():
    """A filter: the sum of the last two inputs."""
    inputs = np.random.default_rng(7).normal(5, 2, (80, 24, 1))
    outputs = inputs.copy()
    outputs[:, 1:] += inputs[:, :-1]
    outputs[3, 4:9] = np.nan  # not known
    data = linnet.Dataset(values=inputs, value_targets=outputs)
    assert data.columns == 1 and data.targets == 1
    settings = tiny(training__steps=300, model__vocabulary=0, model__objective="same-step")
    result = linnet.train(settings, data)
    measured = linnet.evaluate(result.model, data)
    assert measured["squared_error"] < 0.1 and measured["tokens"] == 80 * 24 - 5
    long = np.random.default_rng(8).normal(5, 2, (100, 1))
    assert len(linnet.Dataset.windows(values=long, value_targets=long * 2, length=24)) == 77
    with pytest.raises(linnet.UsageError, match="same-step"):
        linnet.train(tiny(training__steps=1, model__vocabulary=0), data)
    # Numbers from tokens.
    tokens = counting(60, 24, 11)
    data = linnet.Dataset(tokens, value_targets=np.sqrt(tokens)[:, :, None])
    model = linnet.train(tiny(training__steps=200, model__objective="same-step"), data).model
    assert linnet.evaluate(model, data)["squared_error"] < 0.05
    with pytest.raises(linnet.UsageError, match="real numbers"):
        data.packed()
    # Two of three numbers, from the steps before.
    numbers = np.random.default_rng(9).normal(size=(40, 24, 3))
    some = linnet.Dataset(values=numbers, value_targets=numbers[:, :, :2], paired=False)
    model = linnet.train(tiny(training__steps=2, model__vocabulary=0), some).model
    assert model.config["model"]["targets"] == 2 and model.predict(numbers[0]).mean.shape == (24, 2)


def test_examples_have_sources():
    """Strings and the same backwards."""
    random = np.random.default_rng(10)
    source = random.integers(0, 5, (200, 8))
    lengths = random.integers(3, 9, 200)
    tokens = np.zeros((200, 8), np.int64)
    for row, (own, length) in enumerate(zip(source, lengths)):
        tokens[row, :length] = own[:length][::-1]
    data = linnet.Dataset(tokens, lengths=lengths, source=source, source_lengths=lengths, source_vocabulary=6)
    assert (data.source_length, data.source_vocabulary) == (8, 6)
    sizes = {"model__length": 8, "model__vocabulary": 5, "model__encoder_layers": 1, "model__source_length": 8}
    result = linnet.train(tiny(training__steps=5, **sizes), data)
    assert result.model.config["model"]["source_vocabulary"] == 6
    found = result.model.score(tokens[0, : lengths[0]], source=source[0, : lengths[0]])
    measured = linnet.evaluate(result.model, data[:1])
    assert measured["bits"] == pytest.approx(-found.mean() / np.log(2), rel=1e-5)


def test_labels_have_names_and_short_examples_are_packed():
    tokens = counting(40, 24, 11)
    data = linnet.Dataset(tokens, np.arange(40) % 2, lengths=np.arange(40) % 6 + 3, class_names=["up", "down"])
    assert data.class_names == ("up", "down") and data.classes == 2
    packed = data.packed()
    assert len(packed) < 14 and packed.class_names == data.class_names
    model = linnet.train(tiny(training__steps=2), packed).model
    assert model.class_names == ("up", "down")
    with pytest.raises(linnet.UsageError, match="names of 2 classes, got 3"):
        linnet.Dataset(tokens, np.arange(40) % 2, classes=2, class_names=["a", "b", "c"])
    with pytest.raises(linnet.ArgumentTypeError, match="sequence of texts"):
        linnet.Dataset(tokens, np.arange(40) % 2, class_names="ab")
    assert linnet.Dataset(tokens, np.arange(40) % 2, class_names=map(str, "ab")).class_names == ("a", "b")
    for wrong in (5, [b"a", b"b"], None):
        with pytest.raises(linnet.ArgumentTypeError, match="sequence of texts"):
            linnet.Dataset(tokens, np.arange(40) % 2, class_names=wrong)
    with pytest.raises(linnet.UsageError, match="surrogate"):
        linnet.Dataset(tokens, np.arange(40) % 2, class_names=["a", "\ud800"])
    with pytest.raises(linnet.ArgumentTypeError, match="of bool"):
        linnet.Dataset(tokens, counted=tokens)
    with pytest.raises(linnet.UsageError, match="counts in each example, got none in example 0"):
        linnet.Dataset(tokens, counted=tokens < 0)
    with pytest.raises(linnet.UsageError, match="labels for each example, got none"):
        linnet.Dataset(tokens, [])
    with pytest.raises(linnet.UsageError, match="no vocabulary without tokens"):
        linnet.Dataset(values=np.zeros((2, 3, 1)), vocabulary=4)


def test_one_part_of_files_is_opened_alone(tmp_path):
    text = tmp_path / "book.txt"
    text.write_text("abcdefgh" * 100)
    model = linnet.train(tiny(training__steps=1, model__vocabulary=256), linnet.Dataset.text("abcdefgh" * 9, 24)).model
    parts = {split: linnet.Dataset.open(text, model, split=split) for split in ("training", "validation", "test")}
    assert len(parts["training"]) == 720 - 23 and parts["test"][0].tolist() == list(b"abcdefgh" * 3)
    assert len(parts["validation"]) < len(parts["test"]) < len(parts["training"])
    with pytest.raises(linnet.UsageError, match="training, validation, test"):
        linnet.Dataset.open(text, model, split="all")


def test_windows_of_a_text():
    text = "abcdefgh" * 4
    data = linnet.Dataset.text(text, 24)
    assert len(data) == len(text) - 23 and bytes(data[1].astype(np.uint8)) == text[1:25].encode()
    assert linnet.train(tiny(training__steps=2, model__vocabulary=256), data).step == 2


def test_data_sets_keep_their_arrays():
    tokens = counting(30, 24, 11)
    data = linnet.Dataset(tokens)
    expected = data[5]
    del tokens
    assert np.array_equal(data[5], expected) and data[-1].shape == (24,) and data.label(0) is None
    with pytest.raises(IndexError):
        data[30]


def test_lengths_and_labels_are_copied():
    """What the core has checked must not change: a larger length would be read beyond the array."""
    lengths, labels = np.full(30, 20), np.zeros(30, np.int64)
    data = linnet.Dataset(counting(30, 24, 11), labels, lengths, classes=2)
    lengths[:], labels[:] = 10**6, 99
    assert (data[7] >= 0).sum() == 20 and data.label(7) == 0


def test_callbacks_see_and_stop_training():
    seen = {"steps": [], "evaluations": [], "samples": []}
    result = linnet.train(
        tiny(training__steps=50, training__sample_every=2, training__evaluate_every=3),
        counting(30, 24, 11),
        callbacks={
            "on_step": lambda report: seen["steps"].append(report["step"]),
            "on_evaluation": lambda step, evaluation: seen["evaluations"].append((step, evaluation["bits"])),
            "on_sample": lambda step, model: seen["samples"].append((step, model.generate(length=3).shape)),
            "should_stop": lambda: len(seen["steps"]) == 7,
        },
    )
    assert seen["steps"] == [1, 2, 3, 4, 5, 6, 7] and result.step == 7 and not result.finished
    assert seen["samples"][0] == (2, (3,)) and [step for step, _ in seen["evaluations"]][:2] == [3, 6]


def test_an_exception_of_a_callback_ends_training():
    class Callbacks:
        def on_step(self, report):
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        linnet.train(tiny(training__steps=5), counting(30, 24, 11), callbacks=Callbacks())


def test_a_run_is_resumed(tmp_path):
    tokens = counting(60, 24, 11)
    settings = tiny(training__steps=8, training__schedule="constant")
    whole = linnet.train(settings, tokens, out=tmp_path / "whole")
    third = {"should_stop": iter([False, False, True]).__next__}
    stopped = linnet.train(settings, tokens, out=tmp_path / "run", callbacks=third)
    assert stopped.step == 3
    rest = linnet.train(settings, tokens, out=tmp_path / "run", resume=True)
    assert rest.steps.tolist() == [4, 5, 6, 7, 8]
    assert np.array_equal(np.concatenate([stopped.bits, rest.bits]), whole.bits)
    assert np.array_equal(linnet.load(tmp_path / "run").logits(tokens[0]), whole.model.logits(tokens[0]))
    with pytest.raises(linnet.Error, match="expected"):
        linnet.train(settings, tokens, out=tmp_path / "run")


def test_a_trainer_makes_updates():
    tokens = counting(64, 24, 11)
    trainer = linnet.Trainer(tiny(training__steps=40))
    first = trainer.step(tokens)
    reports = [trainer.step(tokens) for _ in range(39)]
    assert first["step"] == 1 and trainer.steps == 40 and reports[-1]["bits"] < 0.5 * first["bits"]
    assert trainer.model.generate(prompt=[1, 2, 3], length=4, temperature=0).tolist() == [1, 2, 3, 4, 5, 6, 7]
    assert trainer.config["model"]["length"] == 24


def test_a_trainer_takes_a_learning_rate():
    tokens = counting(64, 24, 11)
    trainer = linnet.Trainer(tiny(training__steps=40, training__warmup=4))
    scheduled = trainer.learning_rate
    before = linnet.evaluate(trainer.model, tokens)["bits"]
    trainer.learning_rate = np.float32(0)
    assert trainer.step(tokens)["learning_rate"] == trainer.learning_rate == 0
    assert linnet.evaluate(trainer.model, tokens)["bits"] == before
    trainer.learning_rate = None
    assert trainer.learning_rate == 2 * scheduled == trainer.step(tokens)["learning_rate"]
    assert linnet.evaluate(trainer.model, tokens)["bits"] != before
    for wrong in (-1, 11, float("nan"), "0.1", [0.1]):
        with pytest.raises((linnet.UsageError, TypeError), match="learning rate"):
            trainer.learning_rate = wrong


def data_of(kind):
    """A configuration of four updates and examples of this kind."""
    settings = {"training__steps": 4, "training__evaluate_every": 0}
    tokens = counting(30, 24, 11)
    if kind == "masked":
        return tiny(**settings, model__objective="masked"), linnet.Dataset(tokens)
    if kind == "labels":
        config = tiny(**settings, model__objective="classify", model__vocabulary=0)
        return config, linnet.Dataset(tokens, np.arange(30) % 3, lengths=np.arange(30) % 20 + 5)
    if kind == "fields":
        return tiny(**settings, model__vocabulary=0), linnet.Dataset(np.stack([tokens, tokens % 5], axis=2))
    if kind == "numbers":
        waves = np.random.default_rng(2).normal(10, 3, (30, 24, 2)).astype(np.float32)
        return tiny(**settings, model__vocabulary=0), linnet.Dataset(values=waves)
    return tiny(**settings), linnet.Dataset(tokens, lengths=np.arange(30) % 20 + 5)


@pytest.mark.parametrize("kind", ["tokens", "masked", "labels", "fields", "numbers"])
def test_a_trainer_makes_the_updates_of_a_run(kind, tmp_path):
    config, data = data_of(kind)
    result = linnet.train(config, data)
    trainer = linnet.Trainer(config, data)
    reports = [trainer.step_examples() for _ in range(4)]
    assert [report["bits"] for report in reports] == result.bits.tolist()
    for name, model in (("run", result.model), ("trainer", trainer.model)):
        model.save(tmp_path / name)
    files = sorted(path.name for path in (tmp_path / "run").iterdir())
    assert files == sorted(path.name for path in (tmp_path / "trainer").iterdir())
    for name in files:
        assert (tmp_path / "run" / name).read_bytes() == (tmp_path / "trainer" / name).read_bytes(), name


def test_a_trainer_takes_examples_that_are_chosen():
    config, data = data_of("numbers")
    one, other = linnet.Trainer(config, data), linnet.Trainer(config, data)
    first = one.step_examples([3, -1, 3])
    again = other.step_examples([1, 0, 1], data=data.select([29, 3]))
    assert first["bits"] == again["bits"] and first["gradient_norm"] == again["gradient_norm"]
    part = data[10:20]
    assert len(part) == 10 and np.array_equal(part.values(2), data.values(12))
    assert one.step_examples(data=part)["step"] == 2


def test_a_trainer_takes_what_train_takes(tmp_path):
    """Rows of a series and files, with what was trained until Ctrl-C as train returns it."""
    rows = np.random.default_rng(3).normal(5, 2, (120, 2))
    settings = {"data.length": 2, "data.split": "0.6,0.8", "data.patch": 4, "data.horizon": 4}
    settings |= {"training.steps": 4, "training.batch": 2, "training.evaluate_every": 2, "model.layers": 1}
    whole = linnet.train("series", rows, settings=settings)
    trainer = linnet.Trainer("series", rows, settings=settings)
    assert [trainer.step_examples()["bits"] for _ in range(4)] == whole.bits.tolist()

    def stop(report):
        if report["step"] == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as raised:
        linnet.train("series", rows, settings=settings, callbacks={"on_step": stop}, out=tmp_path / "run")
    stopped = raised.value.training
    assert stopped.best_step == 2 and stopped.best_bits == stopped.evaluation["bits"] == whole.evaluation_bits[0]
    assert stopped.best_model is not None and stopped.model.columns == whole.model.columns


def test_a_trainer_takes_inputs_of_real_numbers():
    config, data = data_of("numbers")
    one, other = linnet.Trainer(config, data), linnet.Trainer(config, data)
    targets = np.stack([data.values(index) for index in (4, 7, 1)])
    values = np.full_like(targets, np.nan)
    values[:, 1:] = targets[:, :-1]
    inputs = np.full((3, 24), -1)
    inputs[:, 0] = 0
    found = one.step_with_targets(inputs, values=values, value_targets=targets)
    assert found["bits"] == other.step_examples([4, 7, 1])["bits"]


def test_a_callback_may_change_its_report():
    changed = {"on_step": lambda report: report.clear(), "on_evaluation": lambda step, report: report.clear()}
    tokens = counting(20, 24, 11)
    plain = linnet.train(tiny(training__steps=4, training__evaluate_every=2), tokens)
    result = linnet.train(tiny(training__steps=4, training__evaluate_every=2), tokens, callbacks=changed)
    assert np.array_equal(result.bits, plain.bits) and np.array_equal(result.evaluation_bits, plain.evaluation_bits)


def test_data_may_lack_the_last_labels_of_a_model():
    tokens, labels = counting(30, 24, 11), np.arange(30) % 3
    config = tiny(training__steps=3, model__objective="classify")
    model = linnet.train(config, (tokens, labels)).model
    some = labels < 2
    found = linnet.evaluate(model, (tokens[some], labels[some]))
    told = linnet.evaluate(model, linnet.Dataset(tokens[some], labels[some], classes=3))
    assert found["bits"] == told["bits"]
    with pytest.raises(linnet.UsageError, match="expected the key_lengths of each entry, got none"):
        model.classify(tokens[:2], key_lengths=[])


def test_fields_are_predicted_from_those_before_them_whether_they_count_or_not():
    tokens = np.random.default_rng(1).integers(0, 4, (12, 24, 2))
    model = linnet.train(tiny(training__steps=5, model__vocabulary=0), tokens).model
    counted = np.random.default_rng(2).random(tokens.shape) < 0.5
    scores = -np.stack([model.score(example) for example in tokens]) / np.log(2)
    measured = linnet.evaluate(model, linnet.Dataset(tokens, counted=counted))["field_bits"]
    assert measured == pytest.approx([scores[..., f][counted[..., f]].mean() for f in (0, 1)], rel=1e-5)

    inputs = np.empty_like(tokens)
    inputs[:, 0], inputs[:, 1:] = [4, 4], tokens[:, :-1]
    targets = np.where(counted, tokens, -1)
    found = linnet.Trainer(model.config, initial=model).step_with_targets(inputs, targets, conditions=tokens)
    assert found["bits"] == pytest.approx(scores[counted].mean(), rel=1e-5)


def test_a_trainer_takes_labels_and_sources():
    config, data = data_of("labels")
    one, other = linnet.Trainer(config, data), linnet.Trainer(config, data)
    tokens, lengths = np.stack([data[index] for index in (4, 7, 1)]), [9, 12, 6]
    found = one.step_with_targets(np.maximum(tokens, 0), labels=[1, 1, 1], key_lengths=lengths)
    assert found["bits"] == other.step_examples([4, 7, 1])["bits"]
    pairs = {"model.encoder_layers": 1, "model.source_length": 7, "model.source_vocabulary": 5}
    reader = linnet.Trainer(linnet.configuration(tiny(), pairs))
    inputs = np.array([[11, 1, 2, 3], [11, 4, 5, 6]])
    found = reader.step_with_targets(inputs, inputs[:, [1, 2, 3, 1]], source=[[1, 2, 3], [4, 0, 0]], source_lengths=[3, 1])
    assert found["step"] == 1 and found["bits"] > 1


def test_examples_are_selected():
    tokens = counting(30, 24, 11)
    data = linnet.Dataset(tokens, np.arange(30) % 3)
    assert len(data.select([True] + [False] * 28 + [True])) == 2
    chosen = data.select([5, -1, 5])
    assert len(chosen) == 3 and chosen.classes == 3 and chosen.vocabulary == 11
    assert np.array_equal(chosen[1], tokens[29]) and chosen.label(1) == 2 and np.array_equal(chosen[0], chosen[2])
    even = data.select(np.arange(30) % 2 == 0)
    assert len(even) == 15 and np.array_equal(even[14], tokens[28])
    assert np.array_equal(data[::-10][1], tokens[19]) and np.array_equal(even[3:5][1], tokens[8])
    labels = [linnet.evaluate(linnet.random_model(tiny(), settings={"model.classes": 3}), part)["bits"] for part in (data[:15], data[15:], data)]
    assert labels[2] == pytest.approx((labels[0] + labels[1]) / 2)
    pixels = np.random.default_rng(1).integers(256, size=(6, 4, 6), dtype=np.uint8)
    assert linnet.train(tiny(training__steps=1, model__vocabulary=0), linnet.Dataset.images(pixels)[2:]).model.image == (4, 6, 1)


def test_checkpoints_of_a_trainer(tmp_path):
    tokens = counting(16, 24, 11)
    one, other = linnet.Trainer(tiny()), linnet.Trainer(tiny())
    for _ in range(3):
        one.step(tokens)
    one.save(tmp_path / "checkpoint")
    other.restore(tmp_path / "checkpoint")
    assert other.steps == 3 and other.step(tokens)["bits"] == one.step(tokens)["bits"]


def test_the_loss_of_an_update_is_the_score_of_its_examples():
    tokens = counting(5, 24, 11)
    lengths = np.array([24, 10, 24, 3, 24])
    trainer = linnet.Trainer(tiny())
    model = trainer.model
    known = np.arange(24) < lengths[:, None]
    scores = np.stack([model.score(row) for row in tokens])
    expected = -scores[known].astype(np.float64).mean() / np.log(2)
    assert abs(trainer.step(tokens, lengths=lengths)["bits"] - expected) < 1e-5


def test_files_of_the_shipped_configuration(digits):
    training, validation = linnet.Dataset.open("digits", digits)
    assert validation.length == 256 and validation.classes == 10 and len(training) > len(validation)
    found = linnet.evaluate(digits, "digits", examples=16, accuracy=True)
    assert found["examples"] == 16 and found["bits"] < 2
    assert "digits" in linnet.shipped_configurations()
    result = linnet.train("digits", settings={"training.steps": 2, "data.examples": 200, "training.evaluate_examples": 10})
    assert result.model.image == (16, 16, 1) and result.step == 2


@pytest.mark.parametrize("apart", [False, True])
def test_series_are_opened_as_they_were_trained(apart, tmp_path):
    path = tmp_path / "series.csv"
    path.write_text("date,a,b\n" + "".join(f"2024-01-{i // 24 + 1:02} {i % 24:02}:00,{i % 7},{50 + i % 5}\n" for i in range(200)))
    small = {"model.layers": 1, "model.width": 16, "model.heads": 2, "model.feed_forward": 32, "data.length": 8}
    steps = {"training.steps": 1, "training.batch": 2, "data.patch": 2 if apart else 1, "data.columns_apart": apart}
    config = linnet.configuration({"data": {"kind": "series"}, "model": {"positions": "none"}}, {**small, **steps})
    result = linnet.train(config, path, out=tmp_path / "run")
    for split in ("training", "validation", "test"):
        assert linnet.Dataset.open(path, result.model, split=split).columns == 2
    # Their examples are as the configuration says, and a training of some of them has nothing to warn of.
    training = linnet.Dataset.open(path, result.model, split="training")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert linnet.Trainer(config, training).step_examples()["bits"] == result.bits[0]
        linnet.Trainer(config, training[:4]).step_examples()
    rows = np.array([[i % 7, 50 + i % 5] for i in range(200)])
    assert linnet.evaluate(result.model, rows)["bits"] == pytest.approx(result.evaluation["bits"], rel=1e-6)
    assert linnet.evaluate(result.model, path)["bits"] == pytest.approx(result.evaluation["bits"], rel=1e-6)
    assert (tmp_path / "run" / "columns.json").exists()


def test_series_are_opened_with_settings(tmp_path):
    path = tmp_path / "series.csv"
    rows = "".join(f"{i // 9},{'' if i == 5 else i % 7},{50 + i % 5},{i},{i % 3}\n" for i in range(200))
    path.write_text("hour,a,b,c,d\n" + rows)
    columns = {"data.columns": "d,a", "data.missing": "forward-fill", "data.split": "0.5,0.75"}
    small = {"model.layers": 1, "model.width": 16, "model.heads": 2, "model.feed_forward": 32, "data.length": 8}
    config = linnet.configuration({"data": {"kind": "series"}}, {**small, **columns, "training.steps": 1, "training.batch": 2})
    result = linnet.train(config, path, out=tmp_path / "run")
    # The model knows how its data were read, also where it was saved and loaded.
    result.model.save(tmp_path / "model")
    for model in (result.model, linnet.load(tmp_path / "model"), linnet.load(tmp_path / "run" / "best")):
        bits = linnet.evaluate(model, linnet.Dataset.open(path, model, split="validation"))["bits"]
        assert bits == pytest.approx(result.evaluation["bits"], rel=1e-6)
    validation = linnet.Dataset.open(path, result.model, split="validation", settings=columns)
    assert validation.columns == 2
    assert linnet.evaluate(result.model, validation)["bits"] == pytest.approx(result.evaluation["bits"], rel=1e-6)
    training, same = linnet.Dataset.open(path, result.model, settings=columns)
    assert len(same) == len(validation) and len(training) == 100 - 8 + 1
    with pytest.raises(linnet.UsageError, match="expected the columns d, a of the model, got a, d"):
        linnet.Dataset.open(path, result.model, split="validation", settings={**columns, "data.columns": "a,d"})
    other = linnet.Dataset.open(path, result.model, split="validation", settings={**columns, "data.columns": "a,c"})
    assert linnet.evaluate(result.model, other)["bits"] != pytest.approx(result.evaluation["bits"], rel=1e-3)
    # Another file for testing, beside the one that says what the columns are.
    lines = path.read_text().splitlines(keepends=True)
    (tmp_path / "test.csv").write_text("".join(lines[:40]))
    test = linnet.Dataset.open(path, result.model, split="test", settings={**columns, "data.test": str(tmp_path / "test.csv")})
    behind = linnet.Dataset.open(path, result.model, split="test", settings=columns)
    assert len(test) < len(behind)
    # With data.split the part behind it, otherwise all of the file.
    assert len(behind) < len(linnet.Dataset.open(path, result.model, split="test"))
    for settings, words in (
        ({"data.path": str(path)}, "got data.path"),
        ({"data.kind": "text"}, "got data.kind"),
        ({"training.steps": 1}, "got training.steps"),
        ({"data.column": "a"}, "data.columns"),
        ({"data.columns": "a,z"}, "z"),
        ({"data.token_bytes": 4}, "data.token_bytes"),
    ):
        with pytest.raises(linnet.UsageError, match=words):
            linnet.Dataset.open(path, result.model, split="validation", settings=settings)
    with pytest.raises(linnet.ArgumentTypeError, match="settings as a dictionary"):
        linnet.Dataset.open(path, result.model, settings="data.columns=a")


def test_lines_of_a_classifier_are_opened_as_lines(tmp_path):
    path = tmp_path / "lines.tsv"
    path.write_text("one\tabc\ntwo\tbcd\n" * 20)
    config = {"data": {"kind": "lines", "length": 4}, "model": {"objective": "classify", "layers": 1, "width": 16, "heads": 2}}
    result = linnet.train(config, path, settings={"training.steps": 1, "training.batch": 2})
    assert linnet.Dataset.open(path, result.model)[1].classes == 2
    texts = ["abc", "b", "bcda"]
    found = result.model.classify(texts)
    assert found.shape == (3, 2)
    for text, row in zip(texts, found):
        assert relative(result.model.classify(text), row) < 1e-5
    for same in (tuple(texts), np.array(texts), np.array(texts, object)):
        assert np.array_equal(result.model.classify(same), found)
    with pytest.raises(linnet.ArgumentTypeError):
        result.model.classify(text for text in texts)
    with pytest.raises(linnet.UsageError, match="an empty one"):
        result.model.classify(["abc", ""])
    with pytest.raises(linnet.UsageError, match="no key_lengths"):
        result.model.classify(texts, key_lengths=[1, 1, 1])
    assert linnet.evaluate(result.model, path)["bits"] == pytest.approx(result.evaluation["bits"], rel=1e-6)


def test_evaluations_of_numbers_end_with_ctrl_c():
    """In a process of its own: a signal would reach the tests."""
    program = """
import os, signal, threading, time, numpy as np, linnet
signal.signal(signal.SIGINT, signal.default_int_handler)
model = linnet.random_model({"model.vocabulary": 0, "model.columns": 1, "model.length": 512, "model.width": 64,
                             "model.heads": 4, "model.layers": 4, "model.feed_forward": 256})
data = linnet.Dataset.windows(values=np.zeros((100000, 1), np.float32), length=512)
threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
start = time.monotonic()
try:
    linnet.evaluate(model, data, batch=2)
except KeyboardInterrupt:
    print("interrupted")
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert ended.stdout == "interrupted\n", ended.stderr


def test_an_exception_of_a_callback_leaves_a_checkpoint(tmp_path):
    def stop(report):
        if report["step"] == 3:
            raise KeyboardInterrupt

    whole = linnet.train(tiny(training__steps=5), counting(30, 24, 11), out=tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt) as raised:
        linnet.train(tiny(training__steps=5), counting(30, 24, 11), out=tmp_path / "run", callbacks={"on_step": stop})
    assert (tmp_path / "run" / "checkpoints" / "3").is_dir()
    with pytest.raises(KeyboardInterrupt) as of_no_folder:
        linnet.train(tiny(training__steps=5), counting(30, 24, 11), callbacks={"on_step": stop})
    for stopped in (raised, of_no_folder):
        until_then = stopped.value.training
        assert (until_then.evaluation is None) == (until_then.best_step is None)
        assert until_then.step == 3 and not until_then.finished and np.array_equal(until_then.bits, whole.bits[:3])
        assert np.array_equal(until_then.model.logits([1, 2, 3]), linnet.load(tmp_path / "run").logits([1, 2, 3]))
    rest = linnet.train(tiny(training__steps=5), counting(30, 24, 11), out=tmp_path / "run", resume=True)
    assert rest.steps.tolist() == [4, 5] and np.array_equal(rest.bits, whole.bits[3:])


SCRIPT = """
import os, signal, sys, numpy as np, linnet
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may have it ignored
tokens = (np.arange(30)[:, None] + np.arange(24)) % 11
config = {"model": {"layers": 2, "heads": 2, "width": 16, "feed_forward": 32, "vocabulary": 11, "length": 24}}
def started(*_):
    os.write(1, b"started\\n")  # whole, whenever the signal comes
try:
    if sys.argv[1] == "train":
        try:
            linnet.train(config, tokens, settings={"training.steps": 10**6}, callbacks={"on_step": started}, out=sys.argv[2])
        except KeyboardInterrupt as error:
            assert len(error.training.bits) == error.training.step
            raise
    elif sys.argv[1] == "evaluate":
        model = linnet.random_model(config)
        started()
        linnet.evaluate(model, np.tile(tokens, (20000, 1)))
    else:
        model = linnet.random_model(config, settings={"model.positions": "sinusoidal"})
        started()
        model.generate(length=10**6)
except KeyboardInterrupt:
    os.write(1, b"interrupted\\n")
"""


@pytest.mark.parametrize("work", ["train", "evaluate", "generate"])
def test_ctrl_c_ends_long_work(work, tmp_path):
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join(p for p in sys.path if p))
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, work, tmp_path / "run"], stdout=subprocess.PIPE, text=True, env=environment
    )
    assert process.stdout.readline() == "started\n"
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    lines, _ = process.communicate(timeout=60)
    assert lines.splitlines()[-1] == "interrupted" and process.returncode == 0
    if work == "train":
        assert linnet.load(tmp_path / "run").vocabulary == 11  # a checkpoint was saved


def test_training_runs_beside_other_threads():
    counted, stop = [0], threading.Event()

    def count():
        while not stop.is_set():
            counted[0] += 1
            time.sleep(0.001)

    thread = threading.Thread(target=count)
    thread.start()
    linnet.train(tiny(training__steps=20), counting(30, 24, 11))
    stop.set()
    thread.join()
    assert counted[0] > 5


def test_functions_that_a_training_calls_may_compute():
    tokens = counting(16, 24, 11)
    model = linnet.random_model(tiny())
    seen = []
    linnet.train(
        tiny(training__steps=4, training__evaluate_every=2, training__sample_every=2),
        tokens,
        callbacks={
            "on_step": lambda report: seen.append(linnet.attention(*[uniform(1, 1, 8, 1, 4)] * 3).shape),
            "on_evaluation": lambda step, evaluation: seen.append(linnet.evaluate(model, tokens)["bits"]),
            "on_sample": lambda step, drawn: seen.append(drawn.logits([1, 2, 3]).shape),
        },
    )
    assert seen.count((1, 8, 1, 4)) == 4 and seen.count((3, 11)) == 2 and any(isinstance(bits, float) for bits in seen)
    context = linnet.Context(1)
    with pytest.raises(linnet.UsageError, match="expected another linnet.Context"):
        linnet.train(
            tiny(training__steps=4),
            tokens,
            callbacks={"on_step": lambda report: model.logits([1, 2], context=context)},
            context=context,
        )
