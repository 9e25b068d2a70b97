"""A program that a type checker reads (test_types.py): every result has the type that is asserted here."""

from pathlib import Path
from typing import Any, assert_type

import numpy as np

import linnet


def models(folder: Path, count: int | None) -> None:
    model = linnet.load(folder, settings={"attention.family": "softmax"})
    assert_type(model, linnet.Model)
    assert_type(linnet.random_model("digits", seed=1, settings={"model.length": 8}), linnet.Model)
    assert_type(linnet.configuration({"model": {"layers": 2}}), dict[str, Any])
    assert_type(model.config, dict[str, dict[str, Any]])
    assert_type(model.vocabulary, int)
    assert_type(model.fields, tuple[int, ...])
    assert_type(model.image, tuple[int, int, int] | None)
    assert_type(model.generate(), np.ndarray | str)
    assert_type(model.generate(12, label=[3, 1, 4], seed=1), np.ndarray | list[str])
    assert_type(model.generate(count, prompt="One", progress=lambda drawn, all: None), np.ndarray | list[str] | str)
    assert_type(model.generate_tokens(2, label=7, source=b"12"), np.ndarray)
    assert_type(model.logits("text", label=7), np.ndarray)
    assert_type(model.hidden([[1, 2], [3, 4]], key_lengths=[1, 2]), np.ndarray)
    assert_type(model.score(range(8)), np.ndarray)
    assert_type(model.classify(values=np.zeros((8, 2))), np.ndarray)
    assert_type(model.predict([[0.5, 1.0]]).mean, np.ndarray)
    assert_type(model.fill(np.zeros(8, np.int32)).probabilities, np.ndarray)
    assert_type(model.pixels(np.zeros(256, np.int64)), np.ndarray)
    model.save("folder")


def sessions(model: linnet.Model, logs: bool) -> None:
    assert_type(model.session(streams=2, threads=1), linnet.Session | linnet.NumberSession)
    session = linnet.Session(model, 2, cache=False)
    session.begin(0, label=3, temperature=0.8, top_k=None, source="source")
    session.prefill(0, "text")
    session.prefill([0, 1], [[1, 2], np.zeros(3, np.int32)])
    session.observe([0, 1], streams=range(2))

    def without_first(stream: int, field: int, logits: np.ndarray) -> None:
        logits[0] = -np.inf

    assert_type(session.step(), np.ndarray)
    assert_type(session.step([0], process_logits=without_first), np.ndarray)
    assert_type(session.step(return_log_probabilities=True), tuple[np.ndarray, np.ndarray])
    assert_type(session.step(return_log_probabilities=logs), np.ndarray | tuple[np.ndarray, np.ndarray])
    assert_type(session.sampling(1), dict[str, Any])
    assert_type(session.probabilities(0), np.ndarray)
    assert_type(session.save(), bytes)
    assert_type(session.model, linnet.Model)
    assert_type(session.position(1), int)
    numbers = linnet.NumberSession(model, capacity=8)
    assert_type(numbers.step([[0.5, 1]]), np.ndarray)
    assert_type(numbers.draw(0, seed=1), np.ndarray)
    assert_type(numbers.densities().freedom, np.ndarray)


def texts(model: linnet.Model) -> None:
    tokenizer = model.tokenizer or linnet.Tokenizer(Path("book.model"))
    assert_type(tokenizer, linnet.Tokenizer)
    assert_type(tokenizer.encode("three"), np.ndarray)
    assert_type(tokenizer.decode([1, 2]), str)
    stream = linnet.TextStream(tokenizer, tokenizer.encode(b"One"))
    assert_type(stream.add(3) + stream.finish(), str)
    assert_type(model.text_stream("One").context(), np.ndarray)


def attention(q: np.ndarray, k: memoryview, flag: bool, layout: str) -> None:
    assert_type(linnet.attention(q, q, q, mask="causal", layout=layout, decay=[0.9, 1]), np.ndarray)
    out, state = linnet.attention(q, q, q, return_state=True, family="linear", feature_map=linnet.feature_map("elu"))
    assert_type(out, np.ndarray)
    assert_type(state, linnet.State)
    out, backward = linnet.attention(q, q, q, mask=linnet.Mask.window(100), gradients=True)
    assert_type(backward(out), linnet.Gradients)
    out, state, backward = linnet.attention(q, q, q, state=state, return_state=True, gradients=True)
    assert_type(backward(out, state.save()).decay, np.ndarray | None)
    linear = linnet.Attention("linear", feature_map="relu")
    assert_type(linear(q, q, q, context=linnet.Context(2)), np.ndarray)
    assert_type(linear(q, q, q, return_state=True), tuple[np.ndarray, linnet.State])
    assert_type(linear(q, q, q, gradients=True)[0], np.ndarray)
    assert_type(linear(q, q, q, return_state=True, gradients=True)[1], linnet.State)
    either = linear(q, q, q, return_state=flag, gradients=flag)
    if not isinstance(either, tuple):
        assert_type(either, np.ndarray)
    assert_type(linear.step(q, q, q, linear.state(1, 2, 3), slots=[0]), np.ndarray)
    assert_type(linnet.attention_step(q, q, q, state, family="linear"), np.ndarray)
    assert_type(linnet.attention_gradients(q, q, q, q, mask="causal", family="softmax").q, np.ndarray)
    assert_type(linnet.feature_map("relu")(q), np.ndarray)
    linnet.attention(q, q, q, famly="linear")  # type: ignore[call-overload]
    linnet.attention("q", q, q)  # type: ignore[call-overload]
    linnet.attention(k, q, q)  # type: ignore[call-overload]


def training(tokens: np.ndarray, model: linnet.Model) -> None:
    data = linnet.Dataset(tokens, labels=[1, 2], vocabulary=[3, 4])
    assert_type(data, linnet.Dataset)
    assert_type(linnet.Dataset.text("One two", length=3), linnet.Dataset)
    assert_type(linnet.Dataset.windows(values=[[0.5], [1.5]], length=1), linnet.Dataset)
    assert_type(linnet.Dataset.images(np.zeros((2, 4, 4), np.uint8), levels=16), linnet.Dataset)
    assert_type(linnet.Dataset.open("data", model), tuple[linnet.Dataset, linnet.Dataset])
    assert_type(linnet.Dataset.open(Path("data"), model, split="test"), linnet.Dataset)
    assert_type(linnet.Dataset.open("data", model, "text", "test", settings={"data.length": 9}), linnet.Dataset)
    assert_type(data[0], np.ndarray)
    assert_type(data.label(0), int | None)
    result = linnet.train("digits", data, settings={"training.steps": 2}, callbacks={"on_message": print}, out=Path("run"))
    assert_type(result, linnet.Training)
    assert_type(result.model, linnet.Model)
    assert_type(result.bits, np.ndarray)
    assert_type(result.best_bits, float | None)
    linnet.train({"model": {}}, (tokens, [1, 2]), validation=tokens)
    assert_type(linnet.evaluate(model, "data", accuracy=True), dict[str, Any])
    trainer = linnet.Trainer("digits", initial=model)
    assert_type(trainer.step(tokens, labels=[1, 2]), dict[str, Any])
    assert_type(trainer.step_with_targets(tokens, tokens), dict[str, Any])
    assert_type(trainer.model, linnet.Model)


def tables() -> None:
    assert_type(linnet.settings(), list[dict[str, Any]])
    assert_type(linnet.families(), list[dict[str, Any]])
    assert_type(linnet.shipped_configurations(), list[str])
    assert_type(linnet.available_processors(), int)
    assert_type(linnet.__version__, str)


def errors() -> Exception:
    try:
        linnet.load("nowhere")
    except (linnet.UsageError, linnet.ArgumentTypeError, linnet.OutOfMemoryError) as error:
        value: ValueError | TypeError | MemoryError = error
        return value
    except linnet.Error as error:
        return error
    raise linnet.UsageError("[load] expected an error, got none")
