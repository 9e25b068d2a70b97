"""Models of PyTorch as Linnet's, and back."""

import copy
import io
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from support import sentencepiece_model

import linnet
import linnet.torch as lt
from linnet.torch.fast_transformers.attention import FullAttention, LocalAttention
from linnet.torch.fast_transformers.feature_maps import Favor

SIZES = {"layers": 2, "heads": 2, "width": 16, "feed_forward": 24, "length": 40, "vocabulary": 11}
MODELS = {
    "default": ({}, {}),
    "learned decay": (
        {"norm": "post", "positions": "sinusoidal", "activation": "relu"},
        {"decay": "learned", "shortest_memory": 3, "longest_memory": 50},
    ),
    "fixed decay": ({"tied_output": True, "activation": "gelu-tanh", "positions": "none"}, {"decay": "fixed"}),
    "logistics": ({"head": "logistics", "mixtures": 3, "classes": 4}, {"family": "softmax"}),
    "relu map": ({}, {"feature_map": "squared-relu", "epsilon": 1e-3}),
    "favor": ({}, {"feature_map": "favor", "features": 32, "seed": 3}),
    "favor with a decay": ({"positions": "none"}, {"feature_map": "favor", "features": 32, "decay": "learned"}),
    "hadamard": ({}, {"feature_map": "favor-trig", "features": 20, "directions": "hadamard"}),
    "independent": ({}, {"feature_map": "random-gelu", "features": 16, "directions": "independent"}),
    "local": ({}, {"family": "local", "window": 5}),
    "strided": ({}, {"family": "strided", "stride": 4, "pattern": "fixed", "summary": 1}),
    "strided by length": ({}, {"family": "strided"}),
    "lsh": ({}, {"family": "lsh", "chunk": 8, "rounds": 2, "seed": 5}),
    "masked local": ({"objective": "masked"}, {"family": "local", "window": 4}),
    "linformer": ({"objective": "masked"}, {"family": "linformer", "rank": 7}),
    "linformer with one projection": ({"objective": "masked"}, {"family": "linformer", "rank": 7, "sharing": "layerwise"}),
}


def tokens(masked=False):
    drawn = np.random.default_rng(0).integers(0, 11, (2, 40)).astype(np.int32)
    if masked:
        drawn[:, ::5] = -1
    return drawn


def centred(logits):
    logits = logits.detach().numpy() if isinstance(logits, torch.Tensor) else logits
    return logits - logits.mean(-1, keepdims=True)


@pytest.mark.parametrize("name", MODELS)
def test_logits_agree_both_ways(name, tmp_path):
    model, attention = MODELS[name]
    module = lt.SequenceModel({"model": {**SIZES, **model}, "attention": attention})
    lt.export(module, tmp_path)
    given = tokens(model.get("objective") == "masked")
    label = [3, 1] if model.get("classes") else None
    found = module(torch.from_numpy(given), label)
    loaded = linnet.load(tmp_path)
    assert np.abs(centred(found) - centred(loaded.logits(given, label=label))).max() < 1e-4
    loaded.save(tmp_path / "again")
    back = lt.import_(tmp_path / "again")
    assert torch.equal(back(torch.from_numpy(given), label), found)
    assert not back.training


def test_a_trained_model_of_the_library():
    folder = Path(__file__).resolve().parents[3] / "models" / "digits"
    if not folder.is_dir():
        pytest.skip(f"no {folder}")
    library, module = linnet.load(folder), lt.import_(folder)
    drawn = library.generate_tokens(2, label=7)
    assert np.abs(module(torch.from_numpy(drawn), [7, 7]).detach().numpy() - library.logits(drawn, label=[7, 7])).max() < 1e-4


@pytest.mark.parametrize(
    "attention",
    [
        {"attention_type": "causal-linear"},
        {"attention_type": "favor", "favor_feature_map": "favor-hyperbolic"},
        {"attention_type": "favor", "favor_directions": "hadamard"},
    ],
)
def test_modules_of_fast_transformers(tmp_path, attention):
    builder = lt.TransformerEncoderBuilder.from_kwargs(
        n_layers=2, n_heads=2, query_dimensions=8, value_dimensions=8, feed_forward_dimensions=32,
        dropout=0.0, final_normalization=False, **attention,
    )  # fmt: skip
    embedding, head = torch.nn.Embedding(12, 16), torch.nn.Linear(16, 11)
    module = lt.SequenceModel.of(embedding, builder.get(), head, vocabulary=11, length=40, positions="sinusoidal")
    lt.export(module, tmp_path)
    found = module(torch.from_numpy(tokens()))
    assert np.abs(found.detach().numpy() - linnet.load(tmp_path).logits(tokens())).max() < 1e-4
    assert json.loads((tmp_path / "config.json").read_text())["model"]["norm"] == "post"


def test_what_linnet_has_not_is_refused(tmp_path):
    def model(**changed):
        given = {"n_layers": 1, "n_heads": 2, "query_dimensions": 8, "value_dimensions": 8, "final_normalization": False}
        encoder = lt.TransformerEncoderBuilder.from_kwargs(**{**given, **changed}).get()
        return lt.SequenceModel.of(torch.nn.Embedding(12, 16), encoder, torch.nn.Linear(16, 11), vocabulary=11, length=40)

    assert model().config["attention"]["family"] == "softmax"
    for changed, part in [
        ({"final_normalization": True}, "final_normalization=False"),
        ({"query_dimensions": 4}, "width 16"),
        ({"attention_type": "linear", "feature_map": Favor.factory()}, "Favor"),
        ({"softmax_temp": 0.5}, "softmax_temp"),
        ({"attention_type": "reformer"}, "ReformerAttention"),
    ]:
        with pytest.raises(linnet.Error, match=part):
            model(**changed)
    with pytest.raises(TypeError, match="SequenceModel"):
        lt.export(torch.nn.Linear(2, 2), tmp_path)
    with pytest.raises(ValueError, match="famly"):
        lt.SequenceModel({"attention": {"famly": "linear"}})
    with pytest.raises(linnet.Error, match=r"config\.json"):
        lt.import_(tmp_path / "nothing")
    lt.export(model(), tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"\x00" * 20)
    with pytest.raises(linnet.Error, match=r"model\.safetensors"):
        lt.import_(tmp_path)


def refused(call, part=""):
    with pytest.raises(linnet.Error) as caught:
        call()
    text = str(caught.value)
    assert text.startswith("[") and part in text and "\n" not in text, text


SMALL = {"layers": 1, "heads": 2, "width": 16, "feed_forward": 16, "length": 12, "vocabulary": 9}


@pytest.mark.parametrize(
    "given",
    [
        3,
        [1],
        {"model": 3},
        {1: {}},
        {"model": {"heads": 0}},
        {"model": {"layers": "two"}},
        {"model": {"layers": -1}},
        {"model": {"layers": 2.5}},
        {"model": {"layers": True}},
        {"model": {"width": -4, "heads": 2}},
        {"model": {"length": -4}},
        {"model": {"length": 10**12}},
        {"model": {"vocabulary": 0}},
        {"model": {"dropout": 7}},
        {"model": {"norm": []}},
        {"model": {"classes": -3}},
        {"model": {"tied_output": "no"}},
        {"model": {"tied_output": True, "head": "logistics"}},
        {"model": {"objective": "masked", "classes": 3}},
        {"model": {"objective": "masked"}, "attention": {"family": "strided"}},
        {"model": {"objective": "masked"}, "attention": {"family": "linformer", "rank": 0}},
        {"model": {"objective": "masked"}, "attention": {"family": "linformer", "rank": 300}},
        {"model": {"objective": "masked"}, "attention": {"family": "linformer", "sharing": "x"}},
        {"attention": {"feature_map": "nope"}},
        {"attention": {"epsilon": "x"}},
        {"attention": {"epsilon": float("nan")}},
        {"attention": {"decay": "fixed", "shortest_memory": -1}},
        {"image": {"height": 5, "width": 5}},
    ],
    ids=str,
)
def test_configurations_that_are_refused(given):
    refused(lambda: lt.SequenceModel(given))


def test_tokens_and_labels_are_checked():
    plain = lt.SequenceModel({"model": SMALL})
    classes = lt.SequenceModel({"model": {**SMALL, "classes": 3}})
    masked = lt.SequenceModel({"model": {**SMALL, "objective": "masked"}})
    row = torch.zeros(2, 3, dtype=torch.long)
    for call, part in (
        (lambda: plain(row + 9), "tokens in 0 ... 8"),
        (lambda: plain(row - 1), "tokens in 0 ... 8"),
        (lambda: plain([[1]]), "tokens as a torch.Tensor"),
        (lambda: plain(torch.zeros(1, 13, dtype=torch.long)), "at most 12 tokens"),
        (lambda: plain(row, label=0), "no label"),
        (lambda: masked(row - 7), "tokens in -1 ... 8"),
        (lambda: masked(row + 9), "tokens in -1 ... 8"),
        (lambda: classes(row, label=-1), "label"),
        (lambda: classes(row, label=torch.tensor([0, -1])), "labels in 0 ... 2"),
        (lambda: classes(row, label=3), "labels in 0 ... 2"),
        (lambda: classes(row, label=[1, 1.7]), "label"),
        (lambda: classes(row, label=[0, 0, 0]), "1 or 2 labels"),
        (lambda: classes(row, label=True), "label"),
    ):
        refused(call, part)
    assert torch.equal(classes(row, label=2), classes(row, label=np.array([2, 2])))
    assert masked(row - 1).shape == (2, 3, 9) and plain(row[:0]).shape == (0, 3, 9)


def edited_config(change):
    def damage(folder):
        path = folder / "config.json"
        config = json.loads(path.read_text())
        change(config)
        path.write_text(json.dumps(config))

    return damage


def edited_weights(change=lambda header: None, bytes_=lambda data: data):
    def damage(folder):
        path = folder / "model.safetensors"
        data = path.read_bytes()
        size = int.from_bytes(data[:8], "little")
        header = json.loads(data[8 : 8 + size])
        change(header)
        text = json.dumps(header).encode()
        path.write_bytes(bytes_(len(text).to_bytes(8, "little") + text + data[8 + size :]))

    return damage


@pytest.mark.parametrize(
    "damage",
    [
        edited_config(lambda c: c.update(format=2)),
        edited_config(lambda c: c["model"].update(layers="1")),
        edited_config(lambda c: c["model"].update(heads=0)),
        edited_config(lambda c: c["model"].update(heads=-2)),
        edited_config(lambda c: c["model"].update(length=10**12)),
        edited_config(lambda c: c["attention"].update(feature_map="banana")),
        edited_config(lambda c: c["attention"].update(epsilon=-1)),
        edited_config(lambda c: c.update(image={"height": 5, "width": 5, "channels": 1})),
        edited_weights(lambda h: h["head.weight"].update(shape=[-1, 16])),
        edited_weights(lambda h: h["head.weight"].update(data_offsets=[-576, 0])),
        edited_weights(lambda h: h["head.weight"].update(data_offsets=5)),
        edited_weights(lambda h: h["head.weight"].update(data_offsets=h["head.bias"]["data_offsets"])),
        edited_weights(lambda h: h.update({"head.weight_scale": h["head.bias"]})),
        edited_weights(lambda h: h.update({"head.weight": 3})),
        edited_weights(bytes_=lambda data: data + b"xxxx"),
        edited_weights(bytes_=lambda data: data[:-4]),
        edited_weights(bytes_=lambda data: data[:-4] + np.float32(np.nan).tobytes()),
        lambda folder: (folder / "model.safetensors").unlink(),
        lambda folder: (folder / "config.json").unlink(),
        lambda folder: (folder / "config.json").write_bytes(b"\xff\xfe"),
        lambda folder: (folder / "config.json").write_text("[" * 100000),
    ],
)
def test_damaged_folders_are_refused(damage, tmp_path):
    lt.export(lt.SequenceModel({"model": SMALL}), tmp_path)
    lt.import_(tmp_path)
    damage(tmp_path)
    refused(lambda: lt.import_(tmp_path))


def test_narrow_weights_of_the_library(tmp_path):
    """Files with digests, and with scales beside int8 weights."""
    lt.export(lt.SequenceModel({"model": SMALL}), tmp_path)
    given = torch.arange(9)[None]
    for kind in ("bf16", "int8"):
        linnet.load(tmp_path, {"model.weights": kind}).save(tmp_path / kind)
        found = lt.import_(tmp_path / kind)(given)
        exact = linnet.load(tmp_path / kind, {"model.weights": "f32"}).logits(given.numpy())
        assert np.abs(centred(found) - centred(exact)).max() < 1e-4


def test_paths_that_are_refused(tmp_path):
    model = lt.SequenceModel({"model": SMALL})
    refused(lambda: lt.export(model, 3), "path")
    refused(lambda: lt.import_(3), "path")
    (tmp_path / "file").write_text("")
    refused(lambda: lt.export(model, tmp_path / "file"), "to write")


class Doubled(torch.nn.Linear):
    def forward(self, x):
        return 2 * super().forward(x)


class DoubledNorm(torch.nn.LayerNorm):
    def forward(self, x):
        return 2 * super().forward(x)


class DoubledEmbedding(torch.nn.Embedding):
    def forward(self, x):
        return 2 * super().forward(x)


class DoubledAttention(FullAttention):
    def forward(self, *given):
        return 2 * super().forward(*given)


def parts(final_normalization=False, **changed):
    given = {"n_layers": 2, "n_heads": 2, "query_dimensions": 8, "value_dimensions": 8, "feed_forward_dimensions": 16}
    encoder = lt.TransformerEncoderBuilder.from_kwargs(**given, final_normalization=final_normalization, **changed).get()
    return {"embedding": torch.nn.Embedding(12, 16), "encoder": encoder, "head": torch.nn.Linear(16, 11)}


def pre_norm(norm):
    layers = [
        lt.TransformerEncoderLayer(lt.AttentionLayer(FullAttention(), 16, 2), 16, 16, norm="pre", activation="gelu")
        for _ in range(2)
    ]
    return lt.TransformerEncoder(layers, norm)


def hooked(module):
    module.register_forward_hook(lambda part, inputs, output: 2 * output)
    return module


def changed_layer(path, part):
    def change(given):
        owner, _, name = f"encoder.layers.1.{path}".rpartition(".")
        setattr(torch.nn.ModuleDict(given).get_submodule(owner), name, part)

    return change


PARTS_OF_ANOTHER_MODEL = {
    "strided_stride": lambda given: given.update(parts(attention_type="strided")),
    "activation": changed_layer("activation", torch.nn.functional.silu),
    "several kinds": changed_layer("activation", torch.nn.functional.gelu),
    "activation of a module": changed_layer("activation", torch.nn.SiLU()),
    "eps": changed_layer("norm2", torch.nn.LayerNorm(16, eps=1e-3)),
    "weight and a bias": changed_layer("norm1", torch.nn.LayerNorm(16, elementwise_affine=False)),
    "weight and a bias of a norm": changed_layer("norm1", torch.nn.LayerNorm(16, bias=False)),
    "norm1 of LayerNorm": changed_layer("norm1", torch.nn.RMSNorm(16)),
    "norm1 with the forward": changed_layer("norm1", DoubledNorm(16)),
    "linear1 with the forward": changed_layer("linear1", Doubled(16, 16)),
    "linear2 with a bias": changed_layer("linear2", torch.nn.Linear(16, 16, bias=False)),
    "linear1 of Linear": changed_layer("linear1", torch.nn.Identity()),
    "value_projection with a bias": changed_layer("attention.value_projection", torch.nn.Linear(16, 16, bias=False)),
    "out_projection with the forward": changed_layer("attention.out_projection", Doubled(16, 16)),
    "attention with the forward": changed_layer("attention.inner_attention", DoubledAttention()),
    "dropout of Dropout": changed_layer("dropout", torch.nn.Identity()),
    "max_norm": lambda given: given.update(embedding=torch.nn.Embedding(12, 16, max_norm=1.0)),
    "linear1 without forward hooks": changed_layer("linear1", hooked(torch.nn.Linear(16, 16))),
    "activation gelu": changed_layer("activation", hooked(torch.nn.ReLU())),
    "activation gelu of a class": changed_layer("activation", torch.nn.SiLU()),
    "embedding with the forward": lambda given: given.update(embedding=DoubledEmbedding(12, 16)),
    "head with the forward": lambda given: given.update(head=Doubled(16, 11)),
    "head with a bias": lambda given: given.update(head=torch.nn.Linear(16, 11, bias=False)),
    "final normalisation of LayerNorm": lambda given: given.update(encoder=pre_norm(torch.nn.RMSNorm(16))),
    "final normalisation of LayerNorm, none": lambda given: given.update(encoder=pre_norm(torch.nn.Identity())),
    "final normalisation with eps": lambda given: given.update(encoder=pre_norm(torch.nn.LayerNorm(16, eps=1e-3))),
}


@pytest.mark.parametrize("part", PARTS_OF_ANOTHER_MODEL)
def test_parts_of_another_model_are_refused(part):
    given = parts()
    PARTS_OF_ANOTHER_MODEL[part](given)
    words = part.split(",")[0].split(" of a ")[0]
    refused(lambda: lt.SequenceModel.of(**given, vocabulary=11, length=40), words)


def test_parts_that_change_after_the_model_is_made(tmp_path):
    for given, path, part, words in (
        (parts(), "encoder.layers.0.activation", torch.nn.functional.silu, "activation"),
        (parts(), "encoder.layers.1.linear1", Doubled(16, 16), "linear1"),
        (parts(), "head", torch.nn.Linear(16, 11, bias=False), "head"),
        (parts(), "encoder.layers.1.attention.inner_attention", LocalAttention(4), "several kinds"),
        (None, "embedding", torch.nn.Embedding(10, 16, max_norm=1.0), "max_norm"),
        (None, "encoder.layers.0.activation", torch.nn.functional.relu, "model.activation"),
    ):
        model = lt.SequenceModel({"model": SMALL}) if given is None else None
        model = model or lt.SequenceModel.of(**given, vocabulary=11, length=40)
        owner, _, name = path.rpartition(".")
        setattr(model.get_submodule(owner), name, part)
        refused(lambda: lt.export(model, tmp_path / "other"), words)
    assert not (tmp_path / "other").exists()


class DoubledModel(lt.SequenceModel):
    def forward(self, tokens, label=None):
        return 2 * super().forward(tokens, label)


class DoubledRows(lt.SequenceModel):
    def hidden(self, tokens, label=None):
        return 2 * super().hidden(tokens, label)


def test_models_that_compute_otherwise_are_refused(tmp_path):
    for model, words in (
        (DoubledModel({"model": SMALL}), "forward of SequenceModel"),
        (DoubledRows({"model": SMALL}), "SequenceModel.hidden"),
        (hooked(lt.SequenceModel({"model": SMALL})), "without forward hooks"),
    ):
        refused(lambda: lt.export(model, tmp_path / "other"), words)
    assert not (tmp_path / "other").exists()


ACTIVATIONS = {
    "relu": torch.nn.ReLU(), "gelu": torch.nn.GELU(), "gelu-tanh": torch.nn.GELU("tanh"), "function": torch.nn.functional.gelu
}  # fmt: skip


@pytest.mark.parametrize("function", ACTIVATIONS.values(), ids=ACTIVATIONS.keys())
def test_modules_and_functions_as_activations(function, tmp_path):
    given = parts(dropout=0.0)
    for layer in given["encoder"].layers:
        layer.activation = function
    module = lt.SequenceModel.of(**given, vocabulary=11, length=40)
    lt.export(module, tmp_path)
    assert np.abs(module(torch.from_numpy(tokens())).detach().numpy() - linnet.load(tmp_path).logits(tokens())).max() < 1e-4
    x = torch.randn(2, 5, 16)
    inner = torch.nn.Identity()
    layer = lt.TransformerEncoderLayer(lambda y, *others, **masks: inner(y), 16, activation=function, dropout=0.0)
    assert torch.equal(layer._feed_forward(x), layer.linear2(function(layer.linear1(x))))


def test_parts_that_compute_the_same(tmp_path):
    given = parts(attention_type="strided", strided_stride=5, activation="gelu", dropout=0.0)
    layer = given["encoder"].layers[0]
    layer.linear1 = torch.nn.utils.parametrizations.weight_norm(layer.linear1)
    layer.linear2 = torch.nn.modules.linear.NonDynamicallyQuantizableLinear(16, 16)
    given["embedding"] = torch.nn.Embedding(12, 16, padding_idx=3, scale_grad_by_freq=True, sparse=True)
    module = lt.SequenceModel.of(**given, vocabulary=11, length=40)
    lt.export(module, tmp_path)
    assert np.abs(module(torch.from_numpy(tokens())).detach().numpy() - linnet.load(tmp_path).logits(tokens())).max() < 1e-4


@pytest.mark.parametrize("positions", [torch.zeros(40, 16), "learned", None, np.zeros(3)], ids=["tensor", "learned", "None", "array"])
def test_positions_that_are_refused(positions):
    refused(lambda: lt.SequenceModel.of(**parts(), vocabulary=11, length=40, positions=positions), "as an nn.Parameter")


def saved_and_loaded(module):
    file = io.BytesIO()
    torch.save(module, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


@pytest.mark.parametrize("again", [lambda module: module, copy.deepcopy, saved_and_loaded], ids=["itself", "copy", "file"])
def test_labels_and_tokenizer_are_kept(tmp_path, again):
    plain = lt.SequenceModel({"model": {**SMALL, "vocabulary": 260, "classes": 2}})
    lt.export(plain, tmp_path / "model")
    (tmp_path / "model/labels.json").write_text('["cat", "dög"]')
    (tmp_path / "model/tokenizer.model").write_bytes(sentencepiece_model(["so", " it", "!"]))
    module = again(lt.import_(tmp_path / "model"))
    assert module.state_dict().keys() == plain.state_dict().keys()
    lt.export(module, tmp_path / "other")
    loaded = linnet.load(tmp_path / "other")
    assert loaded.class_names == ("cat", "dög")
    assert list(loaded.tokenizer.encode("so it!")) == [257, 258, 259]
    for name in ("labels.json", "tokenizer.model"):
        assert (tmp_path / "other" / name).read_bytes() == (tmp_path / "model" / name).read_bytes()
    lt.export(plain, tmp_path / "other")
    assert sorted(path.name for path in (tmp_path / "other").iterdir()) == ["config.json", "model.safetensors"]
    assert lt.import_(tmp_path / "other").files == {}


@pytest.mark.parametrize("decay", ["fixed", "learned"])
def test_models_that_are_made_without_memory(decay):
    config = {"model": SMALL, "attention": {"decay": decay}}
    model, given = lt.SequenceModel(config), torch.arange(9)[None]
    with torch.device("meta"):
        empty = lt.SequenceModel(config)
    assert all(parameter.is_meta for parameter in empty.parameters())
    made = empty.to_empty(device="cpu")
    made.load_state_dict(model.state_dict())
    assert torch.equal(made(given), model(given))
    compiled = torch.compile(made, fullgraph=True, backend="aot_eager")
    assert (compiled(given) - model(given)).abs().max() < 1e-5
    assert (made.double()(given) - model(given)).abs().max() < 1e-5
    assert made.to("meta")(given.to("meta")).is_meta
    expected = model(given)
    with torch.device("meta"):
        assert torch.equal(model(given), expected)
