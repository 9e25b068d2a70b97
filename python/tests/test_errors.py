import copy
import pickle

import numpy as np
import pytest
from support import REPOSITORY, counting, tiny, uniform

import linnet

READER = {"model.encoder_layers": 1, "model.source_length": 7, "model.source_vocabulary": 5}
Q = uniform(1, 2, 6, 3, 4)
SENTENCE = r"^\[[a-zA-Z_ .]+\] (.+: )?(expected .+, got .+|cannot read .+)"


def described(**tables):
    return {"model": {"length": 8, "vocabulary": 5}, **tables}


def with_mark(folder):
    """A configuration that begins with a byte order mark, as some editors write it."""
    path = folder / "mark.toml"
    path.write_bytes(b"\xef\xbb\xbf[model]\nlength = 8\nvocabulary = 5\n")
    return path


def test_configurations_of_unknown_tables_are_refused(tmp_path):
    with pytest.raises(linnet.UsageError, match="expected tables among model, attention, .+, got atention"):
        linnet.random_model(described(atention={"family": "softmax"}))
    assert linnet.random_model(described(data={"kind": "text"})).config["model"]["length"] == 8
    assert linnet.configuration(with_mark(tmp_path))["model"] == {"length": 8, "vocabulary": 5}


class Odd:
    def __array__(self, *args, **kwargs):
        raise RuntimeError("no")


def strided_last():
    return np.asfortranarray(Q)


def causal_state(q):
    return linnet.attention(q, q, q, mask="causal", return_state=True)[1]


def stepped(state, **options):
    """One step of Q with a state of these sizes that the same attention made."""
    attention = linnet.Attention()
    return attention.step(Q[:, 0], Q[:, 0], Q[:, 0], attention.state(*state), **options)


# Each with words that only the wanted refusal has.
ATTENTION = {
    "a list": (lambda: linnet.attention([[1.0]], Q, Q), "q as a NumPy array, got list"),
    "None": (lambda: linnet.attention(None, Q, Q), "got NoneType"),
    "an object that is no array": (lambda: linnet.attention(Odd(), Q, Q), "got Odd: no"),
    "float16": (lambda: linnet.attention(Q.astype(np.float16), Q, Q), "float64, got float16"),
    "int32": (lambda: linnet.attention(*[Q.astype(np.int32)] * 3), "float64, got int32"),
    "complex": (lambda: linnet.attention(*[Q.astype(np.complex64)] * 3), "got complex64"),
    "objects": (lambda: linnet.attention(*[Q.astype(object)] * 3), "got object"),
    "float64 with a state": (
        lambda: linnet.attention(*[Q.astype(float)] * 3, mask="causal", return_state=True),
        "with a state, got float64",
    ),
    "float64 at a position": (
        lambda: linnet.attention(*[Q.astype(float)] * 3, position=3),
        "position 0 for float64, got 3",
    ),
    "float64 of other shapes": (
        lambda: linnet.attention(*[Q.astype(float)] * 2, Q[:, :3].astype(float)),
        "value [2, 3, 3, 4] to be as long as key",
    ),
    "two types": (
        lambda: linnet.attention(Q, Q.astype(np.float64), Q),
        "one element type, got q of float32, k of float64",
    ),
    "three axes": (lambda: linnet.attention(Q[0], Q[0], Q[0]), "q [batch, length, heads, dim], got [6, 3, 4]"),
    "five axes": (lambda: linnet.attention(Q[None], Q[None], Q[None]), "got [1, 2, 6, 3, 4]"),
    "other heads": (lambda: linnet.attention(Q, Q[:, :, :2], Q[:, :, :2]), "as many heads as query"),
    "other batch": (lambda: linnet.attention(Q, Q[:1], Q[:1]), "as many batch entries as query"),
    "other dim": (lambda: linnet.attention(Q, Q[..., :2], Q), "as wide heads as query"),
    "other keys and values": (lambda: linnet.attention(Q, Q[:, :5], Q), "to be as long as key, got [2, 5, 3, 4]"),
    "lengths under causal": (
        lambda: linnet.attention(Q, Q[:, :5], Q[:, :5], mask="causal"),
        "under a causal mask, got 6 and 5",
    ),
    "a mask's name": (
        lambda: linnet.attention(Q, Q, Q, mask="casual"),
        "linnet.Mask, 'full', 'causal' or a boolean array [queries, keys], got 'casual'",
    ),
    "a mask's type": (lambda: linnet.attention(Q, Q, Q, mask=3), "or a boolean array [queries, keys], got int"),
    "a masked mask": (
        lambda: linnet.attention(Q, Q, Q, mask=np.ma.masked_array(np.ones((6, 6), bool))),
        "got MaskedArray",
    ),
    "key lengths with fractions": (
        lambda: linnet.Mask.causal().with_key_lengths(np.array([3.9, 2.2], np.float32)),
        "lengths as a whole number, got float32",
    ),
    "key lengths that are no sequence": (
        lambda: linnet.Mask.causal().with_key_lengths(3),
        "a sequence of lengths, got int",
    ),
    "a window with a fraction": (lambda: linnet.Mask.window(1.5), "left as a whole number, got float"),
    "no window": (lambda: linnet.Mask.window(None, 0), "left as a whole number, got NoneType"),
    "a window of huge size": (lambda: linnet.Mask.window(2**70), "at most 64 bits"),
    "bounds with fractions": (
        lambda: linnet.Mask.causal().with_segments([[0, 1.5]]),
        "bounds as a whole number, got float",
    ),
    "no segments of no entries": (
        lambda: linnet.attention(Q[:0], Q[:0], Q[:0], mask=linnet.Mask.window(1).with_segments([])),
        "got 0 lists",
    ),
    "a seed below 0": (
        lambda: linnet.feature_map("favor", head_dim=8, seed=-1),
        "seed in 0 ... 9223372036854775807, got -1",
    ),
    "directions of no kind": (
        lambda: linnet.feature_map("favor", head_dim=8, directions="orthonormal"),
        "directions of auto, orthogonal, independent, hadamard, got 'orthonormal'",
    ),
    "Hadamard directions of 12 numbers": (
        lambda: linnet.feature_map("favor", head_dim=12, directions="hadamard"),
        "a head size that is a power of two from 8 on with Hadamard directions, got 12",
    ),
    "features with a fraction": (
        lambda: linnet.feature_map("favor", head_dim=8, features=2.5),
        "features as a whole number, got float",
    ),
    "threads as text": (lambda: linnet.Context("2"), "threads as a whole number, got str"),
    "a mask's shape": (
        lambda: linnet.attention(Q, Q, Q, mask=np.ones((5, 5), bool)),
        "boolean mask [2 or 1, 6, 6], got [1, 5, 5]",
    ),
    "key lengths": (
        lambda: linnet.attention(Q, Q, Q, mask=linnet.Mask.causal().with_key_lengths([7, 1])),
        "key lengths from 0 to 6, got 7",
    ),
    "segments": (
        lambda: linnet.attention(Q, Q, Q, mask=linnet.Mask.causal().with_segments([0, 3])),
        "segment bounds from 0 to 6, got 0 … 3",
    ),
    "a family": (lambda: linnet.attention(Q, Q, Q, family="liner"), "did you mean linear"),
    "a family's type": (lambda: linnet.attention(Q, Q, Q, family=3), "family as text, got int"),
    "a feature map": (lambda: linnet.attention(Q, Q, Q, feature_map="elo"), "did you mean elu"),
    "a feature map's type": (
        lambda: linnet.attention(Q, Q, Q, feature_map=3),
        "feature_map as text or a linnet.FeatureMap, got int",
    ),
    "a similarity": (lambda: linnet.attention(Q, Q, Q, family="kernel", similarity="gauss"), "did you mean gaussian"),
    "normalise": (lambda: linnet.attention(Q, Q, Q, normalise="yes"), "'sum' or 'none', got 'yes'"),
    "decay of another size": (lambda: linnet.attention(Q, Q, Q, mask="causal", decay=[0.5]), "decay [3], got [1]"),
    "decay above 1": (
        lambda: linnet.attention(Q, Q, Q, mask="causal", decay=[0.5, 2, 1]),
        "at most 1 for head 1, got 2",
    ),
    "decay without a causal mask": (
        lambda: linnet.attention(Q, Q, Q, decay=[0.5] * 3),
        "a causal mask with a decay, got the mask full",
    ),
    "decay as text": (lambda: linnet.attention(Q, Q, Q, mask="causal", decay=np.array(["a"] * 3)), "decay as numbers"),
    "softmax with decay": (
        lambda: linnet.attention(Q, Q, Q, family="softmax", mask="causal", decay=[0.5] * 3),
        "no decay, which the linear family alone has",
    ),
    "a state": (lambda: linnet.attention(Q, Q, Q, mask="causal", state=np.zeros(3)), "a linnet.State, got ndarray"),
    "a state of another batch": (
        lambda: linnet.attention(Q, Q, Q, mask="causal", state=causal_state(Q[:1])),
        "a slot for each of 2 batch entries, got 1",
    ),
    "a state under a full mask": (
        lambda: linnet.attention(Q, Q, Q, return_state=True),
        "with a final state, got the mask full",
    ),
    "a state of lsh": (
        lambda: linnet.attention(Q, Q, Q, family="lsh", mask="causal", return_state=True),
        "a call without states",
    ),
    "a layout": (lambda: linnet.attention(Q, Q, Q, layout="lbhd"), "got 'lbhd'"),
    "a position": (lambda: linnet.attention(Q, Q, Q, position=-1), "a position of at least 0, got -1"),
    "a context": (lambda: linnet.attention(Q, Q, Q, context=3), "a linnet.Context, got int"),
    "grad_out's shape": (
        lambda: linnet.attention_gradients(Q, Q, Q, Q[:, :5]),
        "the gradient of out [2, 6, 3, 4], got [2, 5, 3, 4]",
    ),
    "grad_out's type": (
        lambda: linnet.attention_gradients(Q, Q, Q, Q.astype(np.float64)),
        "q of float32, grad_out of float64",
    ),
    "grad_state without a state": (
        lambda: linnet.attention_gradients(Q, Q, Q, Q, grad_state=np.zeros((2, 3))),
        "with the gradient of a final state, got the mask full",
    ),
    "grad_state's size": (
        lambda: linnet.attention_gradients(Q, Q, Q, Q, mask="causal", grad_state=np.zeros((2, 3))),
        "the gradient of the final state [2, at least 60], got [2, 3]",
    ),
    "a step's shape": (
        lambda: linnet.attention_step(Q, Q, Q, linnet.Attention().state(2, 3, 4)),
        "q [streams, heads, dim], got [2, 6, 3, 4]",
    ),
    "a step with a state of another attention": (
        lambda: linnet.Attention().step(Q[:, 0], Q[:, 0], Q[:, 0], linnet.Attention(epsilon=1e-5).state(2, 3, 4)),
        "a state that this attention made",
    ),
    "a step's heads": (
        lambda: stepped((2, 2, 4)),
        "a state for 3 heads of 4 and values of 4, got one for 2 heads of 4",
    ),
    "slots of a state": (lambda: linnet.Attention().state(0, 3, 4), "slots of at least 1, got 0"),
    "a negative seed": (lambda: linnet.attention(Q, Q, Q, family="lsh", seed=-1), "a seed of at least 0, got -1"),
    "a huge layer": (lambda: linnet.attention(Q, Q, Q, layer=2**40), "a layer of at least 0, got 1099511627776"),
    "a window below 0": (
        lambda: linnet.attention(Q, Q, Q, mask=linnet.Mask.window(-1, 0)),
        "at least 0 keys to either side, got -1 and 0",
    ),
    "a huge window": (
        lambda: linnet.attention(Q, Q, Q, family="local", left=2**41),
        "0 to 2^40 keys to either side, got 2199023255552",
    ),
    "no key lengths": (
        lambda: linnet.Mask.causal().with_key_lengths([]),
        "a key length for each batch entry, got none",
    ),
    "a masked array": (lambda: linnet.attention(np.ma.masked_array(Q), Q, Q), "q without masked elements"),
    "projections of another family": (
        lambda: linnet.attention(Q, Q, Q, key_projection=uniform(1, 1, 2, 6)),
        "the family linformer alone, got some with linear",
    ),
    "a slot twice": (lambda: stepped((2, 3, 4), slots=[1, 1]), "each slot at most once, got slot 1 twice"),
    "slots of another type": (
        lambda: linnet.attention_step(Q[:, 0], Q[:, 0], Q[:, 0], linnet.Attention().state(2, 3, 4), slots=1),
        "a sequence of slots, got int",
    ),
    "linformer without projections": (
        lambda: linnet.attention(Q, Q, Q, family="linformer"),
        "key_projection [3 or 1, rank, length]",
    ),
}


@pytest.mark.parametrize("case", ATTENTION)
def test_attention_refuses(case):
    call, words = ATTENTION[case]
    with pytest.raises(linnet.Error, match=SENTENCE) as found:
        call()
    assert words in str(found.value)
    assert isinstance(found.value, (ValueError, TypeError))


def test_a_prompt_of_a_picture_is_part_of_the_picture(digits):
    with pytest.raises(linnet.UsageError, match="prompt of at most 256 tokens, got 257"):
        digits.generate(prompt=np.zeros(257, int))
    with pytest.raises(linnet.UsageError, match=r"^\[prompt\] expected pixels \[rows, 16\], got \[2, 15\]$"):
        digits.generate(prompt=np.zeros((2, 15), np.uint8))


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
    "a folder that does not exist": (
        lambda m: linnet.load("/nonexistent"),
        "config.json and model.safetensors, got /nonexistent",
    ),
    "a folder of another type": (lambda m: linnet.load(3), "a path, got int"),
    "a setting": (
        lambda m: linnet.load(REPOSITORY / "models/digits", {"model.leyers": 3}),
        '"model.leyers"; did you mean "model.layers"',
    ),
    "tokens out of range": (lambda m: m.logits([0, 11, 2]), "tokens in 0 ... 10, got 0 ... 11"),
    "tokens of another type": (lambda m: m.logits([0.5, 1.5]), "tokens of whole numbers, got float64"),
    "ragged tokens": (lambda m: m.logits([[1, 2], [3]]), "rows of several lengths"),
    "huge tokens": (lambda m: m.logits([2**40]), "got 1099511627776"),
    "too many tokens": (lambda m: m.logits([1] * 25), "at most 24 tokens, the learned positions"),
    "no tokens": (lambda m: m.logits([]), "[logits] expected a batch and a length of at least 1, got [0]"),
    "no entries": (lambda m: m.logits(np.zeros((0, 5), int)), "a batch and a length of at least 1, got [0, 5]"),
    "three axes": (lambda m: m.logits(np.zeros((2, 3, 4), int)), "got [2, 3, 4]"),
    "text for tokens": (lambda m: m.score("abc"), "got text"),
    "a label": (lambda m: m.score([1, 2], label=3), "no label for a model without classes"),
    "a label's type": (lambda m: m.score([1, 2], label="three"), "label as a whole number, got str"),
    "key lengths": (lambda m: m.logits([[1, 2]], key_lengths=[3]), "key lengths in 1 … 2, got 3"),
    "count": (lambda m: m.generate(0), "count of at least 1, got 0"),
    "count's type": (lambda m: m.generate("3"), "count as a whole number, got str"),
    "length": (lambda m: m.generate(length=25), "got 0 of what comes before and 25 to draw"),
    "streams": (lambda m: m.generate(streams=0), "streams of at least 1, got 0"),
    "temperature": (lambda m: m.generate(temperature=float("nan")), "a finite temperature of at least 0, got nan"),
    "temperature's type": (lambda m: m.generate(temperature="hot"), "temperature as a number, got str"),
    "threads": (lambda m: m.generate(threads=-1), "threads in 0 ... 1024, got -1"),
    "filling": (lambda m: m.fill([1, -1]), "an encoder"),
    "a prompt": (lambda m: m.generate(prompt=[99]), "tokens in 0 … 10, got 99"),
    "pixels": (lambda m: m.pixels([1, 2]), "a model of pictures"),
    "a progress": (lambda m: m.generate(progress=3), "a function progress, got int"),
    "streams of a step": (lambda m: m.session().step(0), "a sequence of streams, got int"),
    "settings": (lambda m: linnet.load("/nonexistent", 3), "settings as a dictionary, got int"),
    "a setting of nothing": (
        lambda m: linnet.load("/nonexistent", {"attention": {"family": None}}),
        "[config] expected numbers, text and booleans, got NoneType",
    ),
    "a path with a NUL": (lambda m: m.save("/nonexistent/a\0b"), "[save] expected a path without a NUL, got '/nonexistent/a"),
    "a path that is not UTF-8": (lambda m: m.save(b"/nonexistent/\xff"), "[save] expected a path in UTF-8, got '/nonexistent/"),
    "a masked model's label": (
        lambda m: linnet.random_model(tiny(model__objective="masked")).logits([1, 2], label=1),
        "no label for a model without classes, got 1",
    ),
    "a session": (lambda m: linnet.Session(3), "[session] expected a linnet.Model, got int"),
    "streams of a session": (lambda m: m.session(0), "1048576 streams, got 0"),
    "a huge session": (lambda m: m.session(2**62), "1048576 streams, got 4611686018427387904"),
    "a model": (lambda m: linnet.Model(3), "what linnet.load or linnet.random_model makes, got int"),
}


@pytest.mark.parametrize("case", MODELS)
def test_models_refuse(case):
    call, words = MODELS[case]
    with pytest.raises(linnet.Error, match=SENTENCE) as found:
        call(linnet.random_model(tiny()))
    assert words in str(found.value)


def test_memory_that_is_not_there():
    with pytest.raises(linnet.OutOfMemoryError, match=SENTENCE) as found:
        linnet.train("digits", settings={"training.batch": 1_000_000})
    assert isinstance(found.value, MemoryError) and isinstance(found.value, linnet.Error)
    for family, slots, capacity in (("softmax", 1, 2**60), ("linear", 2**40, 0), ("softmax", 2**60, 0)):
        with pytest.raises(linnet.OutOfMemoryError, match=SENTENCE):
            linnet.Attention(family).state(slots, 2, 4, capacity=capacity)


TOKENS = counting(10, 24, 11)
TRAINING = {
    "a name": (lambda: linnet.train("digts"), "did you mean digits"),
    "a file": (lambda: linnet.train("nowhere/digits.toml"), "nowhere/digits.toml, which does not exist"),
    "a type": (lambda: linnet.train(3), "a TOML file or a name, got int"),
    "a key": (lambda: linnet.train(tiny(model__leyers=2), TOKENS), '"model.leyers"; did you mean "model.layers"'),
    "a table": (lambda: linnet.train({"modle": {"layers": 2}}, TOKENS), 'did you mean "model"'),
    "a value": (lambda: linnet.train(tiny(model__layers=-2), TOKENS), "an integer from 1 to 1000, got -2"),
    "a value's type": (lambda: linnet.train(tiny(model__layers="two"), TOKENS), 'an integer from 1 to 1000, got "two"'),
    "a number that is not finite": (
        lambda: linnet.train(tiny(training__learning_rate=float("nan")), TOKENS),
        "finite numbers",
    ),
    "an empty path": (lambda: linnet.train(tiny(), ""), "a path, got an empty text"),
    "an array as a value": (
        lambda: linnet.train(tiny(model__layers=np.ones(3)), TOKENS),
        "numbers, text and booleans, got ndarray",
    ),
    "an object as a value": (
        lambda: linnet.train(tiny(model__layers=object()), TOKENS),
        "numbers, text and booleans, got object",
    ),
    "a huge model": (
        lambda: linnet.train(tiny(model__width=2**16, model__heads=64, model__layers=1000), TOKENS),
        "memory that are free",
    ),
    "another length": (lambda: linnet.train(tiny(), TOKENS[:, :20]), "model.length = 20 as the data has, got 24"),
    "tokens of another type": (lambda: linnet.train(tiny(), TOKENS.astype(float)), "values [examples, steps, columns]"),
    "masked tokens": (lambda: linnet.train(tiny(), np.ma.masked_equal(TOKENS, 3)), "data without masked elements"),
    "masked values": (
        lambda: linnet.Dataset(values=np.ma.masked_equal(np.ones((2, 3, 1), np.float32), 1)),
        "values without masked elements",
    ),
    "lengths of other examples": (lambda: linnet.Dataset(TOKENS, lengths=[3]), "lengths for 10 examples, got 1"),
    "negative tokens": (lambda: linnet.train(tiny(), TOKENS - 5), "got -5"),
    "large tokens": (
        lambda: linnet.train(tiny(), TOKENS + 5),
        "model.vocabulary of at least 16 as the data has, got 11",
    ),
    "no examples": (lambda: linnet.train(tiny(), TOKENS[:0]), "got [0, 24]"),
    "one axis": (lambda: linnet.train(tiny(), TOKENS[0]), "got [24]"),
    "labels": (lambda: linnet.Dataset(TOKENS, labels=[1, 2]), "labels for 10 examples, got 2"),
    "labels beyond the classes": (
        lambda: linnet.Dataset(TOKENS, labels=[3] * 10, classes=2),
        "labels in 0 … 1, got 3",
    ),
    "lengths": (lambda: linnet.Dataset(TOKENS, lengths=[0] * 10), "lengths in 1 … 24, got 0"),
    "data of another type": (lambda: linnet.train(tiny(), {1: 2}), "(tokens, labels) or a path, got dict"),
    "a path that does not exist": (lambda: linnet.train("text", "/nonexistent"), "/nonexistent, which does not exist"),
    "callbacks": (lambda: linnet.train(tiny(), TOKENS, callbacks={"on_stop": print}), "should_stop, got on_stop"),
    "callbacks of another type": (
        lambda: linnet.train(tiny(), TOKENS, callbacks=3),
        "callbacks as a dictionary or an object",
    ),
    "a callback that is none": (
        lambda: linnet.train(tiny(), TOKENS, callbacks={"on_step": 3}),
        "a function on_step, got int",
    ),
    "resuming nothing": (
        lambda: linnet.train(tiny(), TOKENS, resume=True),
        "the folder of the run to resume, got none",
    ),
    "an initial model": (lambda: linnet.train(tiny(), TOKENS, initial="model"), "a linnet.Model, got str"),
    "pixels of another type": (lambda: linnet.Dataset.images(np.zeros((2, 4, 6))), "pixels of uint8, got float64"),
    "pixels' shape": (lambda: linnet.Dataset.images(np.zeros((2, 4), np.uint8)), "pixels [examples, height, width]"),
    "levels": (lambda: linnet.Dataset.images(np.zeros((2, 4, 6), np.uint8), levels=1), "levels in 2 ... 256, got 1"),
    "a text's length": (lambda: linnet.Dataset.text("abc", 9), "the bytes of the text, got 9"),
    "a model without its length": (lambda: linnet.random_model("digits"), "expected model.length, since no data decide it"),
    "a model without its tokens": (
        lambda: linnet.Trainer("digits", settings={"model.length": 8}),
        "expected model.vocabulary, model.fields or model.columns",
    ),
    "evaluating on a path as validation": (
        lambda: linnet.train(tiny(), TOKENS, validation="book.txt"),
        "an array or (tokens, labels), got str",
    ),
    "evaluating nothing": (lambda: linnet.evaluate(None, TOKENS), "a linnet.Model, got None"),
    "evaluating other data": (
        lambda: linnet.evaluate(linnet.random_model(tiny()), TOKENS[:, :3]),
        "model.length = 3 as the data has, got 24",
    ),
    "a batch of 0": (
        lambda: linnet.evaluate(linnet.random_model(tiny()), TOKENS, batch=0),
        "a batch of at least 1 example, got 0",
    ),
    "an update without targets": (
        lambda: linnet.Trainer(tiny()).step_with_targets(TOKENS, TOKENS * 0 - 1),
        "targets that are not −1",
    ),
    "an update's shapes": (
        lambda: linnet.Trainer(tiny()).step_with_targets(TOKENS, TOKENS[:, 1:]),
        "targets of [10, 24] steps, as of inputs, got [10, 23]",
    ),
    "no data of an update": (lambda: linnet.Trainer(tiny()).step_examples([0]), "where the trainer was made, got none"),
    "an update's example": (lambda: linnet.Trainer(tiny(), TOKENS).step_examples([10]), "indices in -10 ... 9, got 10"),
    "other data of an update": (
        lambda: linnet.Trainer(tiny(), TOKENS).step_examples(data=linnet.Dataset(TOKENS[:, 1:])),
        "model.length",
    ),
    "settings of data in a trainer": (
        lambda: linnet.Trainer(tiny(), TOKENS, settings={"data.horizon": 2}),
        "[trainer] expected settings of data.* with a path",
    ),
    "a group that is no table": (lambda: linnet.train({"data": 3}, TOKENS), "expected data to be a table of options, got 3"),
    "a number beyond float32": (
        lambda: linnet.Trainer({"model": {"length": 3, "columns": 1}}).step_with_targets(
            np.full((2, 3), -1), values=np.full((2, 3, 1), 1e300), value_targets=np.zeros((2, 3, 1))
        ),
        "expected finite values, got inf",
    ),
    "an update of nothing": (lambda: linnet.Trainer(tiny()).step_with_targets(), "expected inputs or values, got neither"),
    "an update's values": (
        lambda: linnet.Trainer(tiny()).step_with_targets(TOKENS, TOKENS, values=np.zeros((10, 3, 1))),
        "values of [10, ",
    ),
    "an update's sources": (
        lambda: linnet.Trainer(linnet.configuration(tiny(), READER)).step_with_targets(TOKENS, TOKENS, source=np.ones((5, 6), int)),
        "source [10, source length], got [5, 6]",
    ),
    "an update's labels": (
        lambda: linnet.Trainer(tiny()).step_with_targets(TOKENS, TOKENS, labels=np.zeros((2, 5), int)),
        "labels [10], got [2, 5]",
    ),
    "a step of a classifier": (
        lambda: linnet.Trainer(tiny(model__objective="classify", model__classes=2)).step(TOKENS),
        "step_examples for a model of the objective classify",
    ),
    "no selection": (lambda: linnet.Dataset(TOKENS).select([]), "at least 1 index"),
    "a selection beyond": (lambda: linnet.Dataset(TOKENS).select([0, -11]), "indices in -10 ... 9, got -11 ... 0"),
    "a selection of truth values": (lambda: linnet.Dataset(TOKENS).select(np.ones(3, bool)), "10 truth values, got [3]"),
    "an update's lengths": (lambda: linnet.Trainer(tiny()).step(TOKENS, lengths=[1]), "10 lengths, got 1"),
    "a checkpoint": (lambda: linnet.Trainer(tiny()).restore("/nonexistent"), "cannot read /nonexistent/"),
    "threads": (lambda: linnet.Context(-1), "threads in 0 ... 1024, got -1"),
    "too many threads": (lambda: linnet.Context(10**6), "threads in 0 ... 1024, got 1000000"),
}


@pytest.mark.parametrize("case", TRAINING)
def test_training_refuses(case):
    call, words = TRAINING[case]
    with pytest.raises(linnet.Error, match=SENTENCE) as found:
        call()
    assert words in str(found.value)


def test_classes_of_exceptions():
    assert issubclass(linnet.UsageError, ValueError) and issubclass(linnet.UsageError, linnet.Error)
    assert issubclass(linnet.ArgumentTypeError, TypeError) and issubclass(linnet.ArgumentTypeError, linnet.Error)
    with pytest.raises(linnet.UsageError, match="did you mean digits"):
        linnet.train("digts")
    with pytest.raises(linnet.UsageError, match="layers"):
        linnet.train(tiny(model__leyers=2), TOKENS)


COPIED = {
    "a model": (lambda: linnet.random_model(tiny()), "save and linnet.load"),
    "a session": (lambda: linnet.random_model(tiny()).session(), "save and restore"),
    "a trainer": (lambda: linnet.Trainer(tiny()), "save and restore"),
    "an attention": (lambda: linnet.Attention(), "a new linnet.Attention"),
    "a context": (lambda: linnet.Context(1), "a new linnet.Context"),
    "a mask": (lambda: linnet.Mask.causal(), "the object itself"),
    "a feature map": (lambda: linnet.feature_map("elu"), "the object itself"),
    "a similarity": (lambda: linnet.similarity("exponential"), "the object itself"),
    "a data set": (lambda: linnet.Dataset(TOKENS), "the object itself"),
    "a tokenizer": (lambda: linnet.random_model(tiny(model__vocabulary=256)).tokenizer, "the object itself"),
    "a stream of text": (lambda: linnet.random_model(tiny(model__vocabulary=256)).text_stream(), "stream.context()"),
}


@pytest.mark.parametrize("case", COPIED)
def test_what_is_not_copied_says_what_to_do(case):
    make, words = COPIED[case]
    thing = make()
    for function in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(linnet.ArgumentTypeError, match=SENTENCE) as found:
            function(thing)
        assert words in str(found.value)
