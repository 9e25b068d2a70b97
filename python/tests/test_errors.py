import numpy as np
import pytest
from support import counting, tiny, uniform

import linnet

Q = uniform(1, 2, 6, 3, 4)
SENTENCE = r"^\[[a-zA-Z_ .]+\] (.+: )?(expected .+, got .+|cannot read .+)"


class Odd:
    def __array__(self, *args, **kwargs):
        raise RuntimeError("no")


def strided_last():
    return np.asfortranarray(Q)


ATTENTION = {
    "a list": lambda: linnet.attention([[1.0]], Q, Q),
    "None": lambda: linnet.attention(None, Q, Q),
    "an object that is no array": lambda: linnet.attention(Odd(), Q, Q),
    "float16": lambda: linnet.attention(Q.astype(np.float16), Q, Q),
    "int32": lambda: linnet.attention(*[Q.astype(np.int32)] * 3),
    "complex": lambda: linnet.attention(*[Q.astype(np.complex64)] * 3),
    "objects": lambda: linnet.attention(*[Q.astype(object)] * 3),
    "float64 with a state": lambda: linnet.attention(*[Q.astype(float)] * 3, mask="causal", return_state=True),
    "float64 at a position": lambda: linnet.attention(*[Q.astype(float)] * 3, position=3),
    "float64 of other shapes": lambda: linnet.attention(*[Q.astype(float)] * 2, Q[:, :3].astype(float)),
    "two types": lambda: linnet.attention(Q, Q.astype(np.float64), Q),
    "three axes": lambda: linnet.attention(Q[0], Q[0], Q[0]),
    "five axes": lambda: linnet.attention(Q[None], Q[None], Q[None]),
    "other heads": lambda: linnet.attention(Q, Q[:, :, :2], Q[:, :, :2]),
    "other batch": lambda: linnet.attention(Q, Q[:1], Q[:1]),
    "other dim": lambda: linnet.attention(Q, Q[..., :2], Q),
    "other keys and values": lambda: linnet.attention(Q, Q[:, :5], Q),
    "lengths under causal": lambda: linnet.attention(Q, Q[:, :5], Q[:, :5], mask="causal"),
    "a mask's name": lambda: linnet.attention(Q, Q, Q, mask="casual"),
    "a mask's type": lambda: linnet.attention(Q, Q, Q, mask=3),
    "a masked mask": lambda: linnet.attention(Q, Q, Q, mask=np.ma.masked_array(np.ones((6, 6), bool))),
    "key lengths with fractions": lambda: linnet.Mask.causal().with_key_lengths(np.array([3.9, 2.2], np.float32)),
    "key lengths that are no sequence": lambda: linnet.Mask.causal().with_key_lengths(3),
    "a window with a fraction": lambda: linnet.Mask.window(1.5),
    "a window of huge size": lambda: linnet.Mask.window(2**70),
    "bounds with fractions": lambda: linnet.Mask.causal().with_segments([[0, 1.5]]),
    "no segments of no entries": lambda: linnet.attention(
        Q[:0], Q[:0], Q[:0], mask=linnet.Mask.window(1).with_segments([])
    ),
    "a seed below 0": lambda: linnet.feature_map("favor", head_dim=8, seed=-1),
    "features with a fraction": lambda: linnet.feature_map("favor", head_dim=8, features=2.5),
    "threads as text": lambda: linnet.Context("2"),
    "a mask's shape": lambda: linnet.attention(Q, Q, Q, mask=np.ones((5, 5), bool)),
    "key lengths": lambda: linnet.attention(Q, Q, Q, mask=linnet.Mask.causal().with_key_lengths([7, 1])),
    "segments": lambda: linnet.attention(Q, Q, Q, mask=linnet.Mask.causal().with_segments([0, 3])),
    "a family": lambda: linnet.attention(Q, Q, Q, family="liner"),
    "a family's type": lambda: linnet.attention(Q, Q, Q, family=3),
    "a feature map": lambda: linnet.attention(Q, Q, Q, feature_map="elo"),
    "a feature map's type": lambda: linnet.attention(Q, Q, Q, feature_map=3),
    "a similarity": lambda: linnet.attention(Q, Q, Q, family="kernel", similarity="gauss"),
    "normalise": lambda: linnet.attention(Q, Q, Q, normalise="yes"),
    "decay of another size": lambda: linnet.attention(Q, Q, Q, mask="causal", decay=[0.5]),
    "decay above 1": lambda: linnet.attention(Q, Q, Q, mask="causal", decay=[0.5, 2, 1]),
    "decay without a causal mask": lambda: linnet.attention(Q, Q, Q, decay=[0.5] * 3),
    "decay as text": lambda: linnet.attention(Q, Q, Q, mask="causal", decay=np.array(["a"] * 3)),
    "softmax with decay": lambda: linnet.attention(Q, Q, Q, family="softmax", mask="causal", decay=[0.5] * 3),
    "a state": lambda: linnet.attention(Q, Q, Q, mask="causal", state=np.zeros(3)),
    "a state of another batch": lambda: linnet.attention(
        Q, Q, Q, mask="causal", state=linnet.attention(Q[:1], Q[:1], Q[:1], mask="causal", return_state=True)[1]
    ),
    "a state under a full mask": lambda: linnet.attention(Q, Q, Q, return_state=True),
    "a state of lsh": lambda: linnet.attention(Q, Q, Q, family="lsh", mask="causal", return_state=True),
    "a layout": lambda: linnet.attention(Q, Q, Q, layout="lbhd"),
    "a position": lambda: linnet.attention(Q, Q, Q, position=-1),
    "a context": lambda: linnet.attention(Q, Q, Q, context=3),
    "grad_out's shape": lambda: linnet.attention_gradients(Q, Q, Q, Q[:, :5]),
    "grad_out's type": lambda: linnet.attention_gradients(Q, Q, Q, Q.astype(np.float64)),
    "grad_state without a state": lambda: linnet.attention_gradients(Q, Q, Q, Q, grad_state=np.zeros((2, 3))),
    "grad_state's size": lambda: linnet.attention_gradients(Q, Q, Q, Q, mask="causal", grad_state=np.zeros((2, 3))),
    "a step's shape": lambda: linnet.attention_step(Q, Q, Q, linnet.Attention().state(2, 3, 4)),
    "a step's heads": lambda: linnet.Attention().step(Q[:, 0], Q[:, 0], Q[:, 0], linnet.Attention().state(2, 3, 4)),
    "slots of a state": lambda: linnet.Attention().state(0, 3, 4),
    "a negative seed": lambda: linnet.attention(Q, Q, Q, family="lsh", seed=-1),
    "a huge layer": lambda: linnet.attention(Q, Q, Q, layer=2**40),
    "a huge window": lambda: linnet.attention(Q, Q, Q, mask=linnet.Mask.window(-1, 0)),
    "no key lengths": lambda: linnet.Mask.causal().with_key_lengths([]),
    "a masked array": lambda: linnet.attention(np.ma.masked_array(Q), Q, Q),
    "projections of another family": lambda: linnet.attention(Q, Q, Q, key_projection=uniform(1, 1, 2, 6)),
    "a slot twice": lambda: linnet.attention_step(Q[:, 0], Q[:, 0], Q[:, 0], linnet.Attention().state(2, 3, 4), slots=[1, 1]),
    "slots of another type": lambda: linnet.attention_step(
        Q[:, 0], Q[:, 0], Q[:, 0], linnet.Attention().state(2, 3, 4), slots=1
    ),
    "linformer without projections": lambda: linnet.attention(Q, Q, Q, family="linformer"),
}


@pytest.mark.parametrize("case", ATTENTION)
def test_attention_refuses(case):
    with pytest.raises(linnet.Error, match=SENTENCE) as found:
        ATTENTION[case]()
    assert isinstance(found.value, (ValueError, TypeError))


def test_a_prompt_of_a_picture_is_not_longer_than_the_picture(digits):
    with pytest.raises(linnet.UsageError, match="prompt of at most 256 tokens, got 257"):
        digits.generate(prompt=np.zeros(257, int))


def test_a_last_axis_with_gaps_is_copied_by_the_package_and_refused_by_the_core():
    plain = linnet.attention(Q, Q, Q)
    assert np.array_equal(linnet.attention(strided_last(), Q, Q), plain)
    core = linnet.Attention()._core_of(4)
    out = np.empty_like(Q)
    with pytest.raises(linnet.UsageError, match="last axis is contiguous"):
        core.forward(linnet.Context(1), out, strided_last(), Q, Q, linnet.Mask.full())
    out.flags.writeable = False
    with pytest.raises(linnet.UsageError, match="writable out"):
        core.forward(linnet.Context(1), out, Q, Q, Q, linnet.Mask.full())


MODELS = {
    "a folder that does not exist": lambda m: linnet.load("/nonexistent"),
    "a folder of another type": lambda m: linnet.load(3),
    "a setting": lambda m: linnet.load("/nonexistent", {"model.leyers": 3}),
    "tokens out of range": lambda m: m.logits([0, 11, 2]),
    "tokens of another type": lambda m: m.logits([0.5, 1.5]),
    "ragged tokens": lambda m: m.logits([[1, 2], [3]]),
    "huge tokens": lambda m: m.logits([2**40]),
    "too many tokens": lambda m: m.logits([1] * 25),
    "no tokens": lambda m: m.logits([]),
    "three axes": lambda m: m.logits(np.zeros((2, 3, 4), int)),
    "text for tokens": lambda m: m.score("abc"),
    "a label": lambda m: m.score([1, 2], label=3),
    "a label's type": lambda m: m.score([1, 2], label="three"),
    "key lengths": lambda m: m.logits([[1, 2]], key_lengths=[3]),
    "count": lambda m: m.generate(0),
    "count's type": lambda m: m.generate("3"),
    "length": lambda m: m.generate(length=25),
    "streams": lambda m: m.generate(streams=0),
    "temperature": lambda m: m.generate(temperature=float("nan")),
    "temperature's type": lambda m: m.generate(temperature="hot"),
    "threads": lambda m: m.generate(threads=-1),
    "filling": lambda m: m.fill([1, -1]),
    "a prompt": lambda m: m.generate(prompt=[99]),
    "pixels": lambda m: m.pixels([1, 2]),
    "a progress": lambda m: m.generate(progress=3),
    "streams of a step": lambda m: m.session().step(0),
    "settings": lambda m: linnet.load("/nonexistent", 3),
    "a session": lambda m: linnet.Session(3),
    "streams of a session": lambda m: m.session(0),
    "a huge session": lambda m: m.session(2**62),
    "a model": lambda m: linnet.Model(3),
}


@pytest.mark.parametrize("case", MODELS)
def test_models_refuse(case):
    with pytest.raises((linnet.Error, MemoryError), match=None if case == "a huge session" else SENTENCE):
        MODELS[case](linnet.random_model(tiny()))


TOKENS = counting(10, 24, 11)
TRAINING = {
    "a name": lambda: linnet.train("digts"),
    "a file": lambda: linnet.train("nowhere/digits.toml"),
    "a type": lambda: linnet.train(3),
    "a key": lambda: linnet.train(tiny(model__leyers=2), TOKENS),
    "a table": lambda: linnet.train({"modle": {"layers": 2}}, TOKENS),
    "a value": lambda: linnet.train(tiny(model__layers=-2), TOKENS),
    "a value's type": lambda: linnet.train(tiny(model__layers="two"), TOKENS),
    "a number that is not finite": lambda: linnet.train(tiny(training__learning_rate=float("nan")), TOKENS),
    "an empty path": lambda: linnet.train(tiny(), ""),
    "an array as a value": lambda: linnet.train(tiny(model__layers=np.ones(3)), TOKENS),
    "an object as a value": lambda: linnet.train(tiny(model__layers=object()), TOKENS),
    "a huge model": lambda: linnet.train(tiny(model__width=2**16, model__layers=1000), TOKENS),
    "another length": lambda: linnet.train(tiny(), TOKENS[:, :20]),
    "tokens of another type": lambda: linnet.train(tiny(), TOKENS.astype(float)),
    "masked tokens": lambda: linnet.train(tiny(), np.ma.masked_equal(TOKENS, 3)),
    "masked values": lambda: linnet.Dataset(values=np.ma.masked_equal(np.ones((2, 3, 1), np.float32), 1)),
    "lengths of other examples": lambda: linnet.Dataset(TOKENS, lengths=[3]),
    "negative tokens": lambda: linnet.train(tiny(), TOKENS - 5),
    "large tokens": lambda: linnet.train(tiny(), TOKENS + 5),
    "no examples": lambda: linnet.train(tiny(), TOKENS[:0]),
    "one axis": lambda: linnet.train(tiny(), TOKENS[0]),
    "labels": lambda: linnet.Dataset(TOKENS, labels=[1, 2]),
    "labels beyond the classes": lambda: linnet.Dataset(TOKENS, labels=[3] * 10, classes=2),
    "lengths": lambda: linnet.Dataset(TOKENS, lengths=[0] * 10),
    "data of another type": lambda: linnet.train(tiny(), {1: 2}),
    "a path that does not exist": lambda: linnet.train("text", "/nonexistent"),
    "callbacks": lambda: linnet.train(tiny(), TOKENS, callbacks={"on_stop": print}),
    "callbacks of another type": lambda: linnet.train(tiny(), TOKENS, callbacks=3),
    "a callback that is none": lambda: linnet.train(tiny(), TOKENS, callbacks={"on_step": 3}),
    "resuming nothing": lambda: linnet.train(tiny(), TOKENS, resume=True),
    "an initial model": lambda: linnet.train(tiny(), TOKENS, initial="model"),
    "pixels of another type": lambda: linnet.Dataset.images(np.zeros((2, 4, 6))),
    "pixels' shape": lambda: linnet.Dataset.images(np.zeros((2, 4), np.uint8)),
    "levels": lambda: linnet.Dataset.images(np.zeros((2, 4, 6), np.uint8), levels=1),
    "a text's length": lambda: linnet.Dataset.text("abc", 9),
    "evaluating nothing": lambda: linnet.evaluate(None, TOKENS),
    "evaluating other data": lambda: linnet.evaluate(linnet.random_model(tiny()), TOKENS[:, :3]),
    "a batch of 0": lambda: linnet.evaluate(linnet.random_model(tiny()), TOKENS, batch=0),
    "an update without targets": lambda: linnet.Trainer(tiny()).step_with_targets(TOKENS, TOKENS * 0 - 1),
    "an update's shapes": lambda: linnet.Trainer(tiny()).step_with_targets(TOKENS, TOKENS[:, 1:]),
    "an update's lengths": lambda: linnet.Trainer(tiny()).step(TOKENS, lengths=[1]),
    "a checkpoint": lambda: linnet.Trainer(tiny()).restore("/nonexistent"),
    "threads": lambda: linnet.Context(-1),
    "too many threads": lambda: linnet.Context(10**6),
}


@pytest.mark.parametrize("case", TRAINING)
def test_training_refuses(case):
    with pytest.raises(linnet.Error, match=SENTENCE):
        TRAINING[case]()


def test_classes_of_exceptions():
    assert issubclass(linnet.UsageError, ValueError) and issubclass(linnet.UsageError, linnet.Error)
    assert issubclass(linnet.ArgumentTypeError, TypeError) and issubclass(linnet.ArgumentTypeError, linnet.Error)
    with pytest.raises(linnet.UsageError, match="did you mean digits"):
        linnet.train("digts")
    with pytest.raises(linnet.UsageError, match="layers"):
        linnet.train(tiny(model__leyers=2), TOKENS)


def test_a_model_is_not_pickled():
    import pickle

    with pytest.raises(TypeError, match="save"):
        pickle.dumps(linnet.random_model(tiny()))
