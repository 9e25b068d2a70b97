"""Models of PyTorch as Linnet's, and back."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

import linnet
import linnet.torch as lt
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


def test_modules_of_fast_transformers(tmp_path):
    builder = lt.TransformerEncoderBuilder.from_kwargs(
        n_layers=2, n_heads=2, query_dimensions=8, value_dimensions=8, feed_forward_dimensions=32,
        attention_type="causal-linear", dropout=0.0, final_normalization=False,
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
    with pytest.raises(linnet.Error, match="damaged"):
        lt.import_(tmp_path)
