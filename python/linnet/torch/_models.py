"""Sequential models of tokens, bytes and pixels, as Linnet's own models are: embedding, positions, encoder and output head."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from .. import _core
from ._arguments import NAMES, numbers, refuse, refuse_type
from ._functions import (
    linear_attention,
    linformer_attention,
    local_attention,
    lsh_attention,
    softmax_attention,
    strided_attention,
)
from .fast_transformers.attention import (
    AttentionLayer,
    CausalLinearAttention,
    FavorAttention,
    FullAttention,
    LinearAttention,
    LocalAttention,
    StridedAttention,
)
from .fast_transformers.feature_maps import is_elu
from .fast_transformers.masking import TriangularCausalMask, linnet_mask
from .fast_transformers.transformers import TransformerEncoder, TransformerEncoderLayer, has_forward_hooks, name_of_activation

MODEL = {
    "objective": "next-token", "layers": 4, "heads": 4, "width": 64, "feed_forward": 256, "norm": "pre", "norm_kind": "layer",
    "activation": "gelu", "dropout": 0.0, "tied_output": False, "positions": "learned", "length": 256, "vocabulary": 256, "classes": 0,
    "head": "categorical", "mixtures": 10, "fields": "", "columns": 0, "targets": 0, "patch": 1, "relative": False, "relative_inputs": False, "value_head": "gaussian",
    "bidirectional": False, "encoder_layers": 0, "source_length": 0, "source_vocabulary": 0,
}  # fmt: skip
ATTENTION = {
    "family": "linear", "layers": "", "feature_map": "elu", "alpha": 1.0, "epsilon": 1e-6, "normalise": "sum", "window": 128, "stride": 0,
    "pattern": "strided", "summary": 8, "decay": "none", "shortest_memory": 32.0, "longest_memory": 4096.0, "rank": 128,
    "sharing": "none", "buckets": 0, "chunk": 64, "rounds": 1, "seed": 0, "features": 0, "directions": "auto",
}  # fmt: skip
IMAGE = {"height": 0, "width": 0, "channels": 1}

_CHOICES = {
    "objective": ("next-token", "masked"),
    "norm": ("pre", "post"),
    "norm_kind": ("layer",),
    "activation": ("gelu", "gelu-tanh", "relu"),
    "positions": ("learned", "sinusoidal", "none"),
    "head": ("categorical", "logistics"),
    "family": ("linear", "softmax", "local", "strided", "linformer", "lsh"),
    "decay": ("none", "fixed", "learned"),
    **NAMES,
    "sharing": ("none", "headwise", "key-value", "layerwise"),
}


_IGNORED = {"weights", "redraw", "similarity", "cache"}
_LIMITS = {row["key"]: (row["type"], row["range"]) for row in _core.settings()}
_CLASSES = {"integer": int, "number": (int, float), "text": str, "boolean": bool}


def _check_value(key, value):
    """Throws unless a value of a configuration has its type and lies in its range."""
    kind, limits = _LIMITS[key]
    if not isinstance(value, _CLASSES[kind]) or (isinstance(value, bool) and kind != "boolean"):
        refuse_type("model", f"{key} as {kind}", repr(value))
    if kind in ("integer", "number"):
        least, most = (float(part) for part in limits.split(" … "))
        if not least <= value <= most:
            refuse("model", f"{key} in {limits}", repr(value))


def _table(name, given, defaults):
    if not isinstance(given, Mapping):
        refuse_type("model", f"a dictionary as the table {name}", type(given).__name__)
    for key, value in given.items():
        if key in _IGNORED:
            continue
        if key not in defaults:
            refuse("model", f"keys of the table {name}", repr(key))
        _check_value(f"{name}.{key}", value)
        if key in _CHOICES and value not in _CHOICES[key]:
            refuse("model", f"{name}.{key} of {', '.join(_CHOICES[key])}", repr(value))
    return {**defaults, **{key: value for key, value in given.items() if key not in _IGNORED}}


def _check_tables(model, attention, image):
    """Throws for values that do not go together."""
    masked, family = model["objective"] == "masked", attention["family"]
    if model["tied_output"] and model["head"] == "logistics":
        refuse("model", "no tied_output with the head 'logistics'", "both")
    for key in ("fields", "columns", "targets", "patch", "relative", "relative_inputs", "bidirectional"):
        if model[key] != MODEL[key]:
            refuse("model", f"one token per step, model.{key} = {MODEL[key]!r}", repr(model[key]))
    if model["encoder_layers"]:
        refuse("model", "a model without an encoder, model.encoder_layers = 0", str(model["encoder_layers"]))
    for key in ("source_length", "source_vocabulary"):
        if model[key]:
            refuse("model", f"model.{key} = 0 without an encoder", str(model[key]))
    if model["vocabulary"] < 2:
        refuse("model", "model.vocabulary of at least 2", str(model["vocabulary"]))
    if attention["layers"]:
        refuse("model", "the same family in all layers, attention.layers = ''", repr(attention["layers"]))
    if family == "linear" and attention["decay"] != "none":
        if masked:
            refuse("model", "no decay with the objective 'masked'", attention["decay"])
    if masked and family == "strided":
        refuse("model", "a family that sees tokens on both sides with the objective 'masked'", family)
    if masked and model["classes"]:
        refuse("model", "no classes with the objective 'masked'", str(model["classes"]))
    if family == "linformer" and masked and attention["rank"] > model["length"]:
        refuse("model", f"attention.rank of at most model.length {model['length']}", str(attention["rank"]))
    pixels = image["height"] * image["width"] * image["channels"]
    if (image["height"] or image["width"]) and pixels != model["length"]:
        refuse("model", f"image.height x image.width x image.channels to be model.length {model['length']}", str(pixels))


class ConfiguredAttention(nn.Module):
    """The attention of a layer of a Linnet model, with the keys of its table ``attention``."""

    def __init__(self, table, heads, length, causal, layer, shared=None):
        super().__init__()
        self.table = table
        self.layer = layer
        self.length = length
        self.causal = causal
        family = table["family"]
        if family == "linformer":
            if causal:
                refuse("model", "the objective 'masked' with linformer", "'next-token'")
            sharing = table["sharing"]
            rows = heads if sharing == "none" else 1
            if sharing == "layerwise" and shared is not None:
                self.key_projection = shared
            else:
                self.key_projection = nn.Parameter(torch.randn(rows, table["rank"], length) * length**-0.5)
            self.value_projection = None
            if sharing in ("none", "headwise"):
                self.value_projection = nn.Parameter(torch.randn(rows, table["rank"], length) * length**-0.5)
        if family == "linear" and table["decay"] != "none":
            shortest, growth = table["shortest_memory"], table["longest_memory"] / table["shortest_memory"]
            memory = [shortest * growth ** (head / max(heads - 1, 1)) for head in range(heads)]
            self.initial_decay = [1 - 1 / tokens for tokens in memory]
            if table["decay"] == "learned":
                self.decay = nn.Parameter(torch.tensor([math.log(tokens - 1) for tokens in memory]))

    def _gamma(self, device):
        kind = self.table["decay"]
        if kind == "none":
            return None
        if kind == "learned":
            return torch.sigmoid(self.decay).clamp(min=1e-6)
        return torch.tensor(self.initial_decay, dtype=torch.float32, device=device)

    def forward(self, queries, keys, values, attn_mask, query_lengths, key_lengths):
        table = self.table
        family = table["family"]
        mask = linnet_mask(attn_mask, key_lengths, queries, keys)
        lengths = {name: value for name, value in mask.items() if name == "key_lengths"}
        if family == "linear":
            return linear_attention(
                queries, keys, values, decay=self._gamma(queries.device), feature_map=table["feature_map"], alpha=table["alpha"],
                features=table["features"], directions=table["directions"], seed=table["seed"], layer=self.layer, normalise=table["normalise"],
                epsilon=table["epsilon"], **mask,
            )  # fmt: skip
        if family == "softmax":
            return softmax_attention(queries, keys, values, **mask)
        if family == "local":
            right = 0 if self.causal else table["window"]
            return local_attention(queries, keys, values, left=table["window"], right=right, **mask)
        if family == "strided":
            stride = table["stride"] or 32 * max(1, math.ceil(math.sqrt(self.length) / 32))
            return strided_attention(
                queries, keys, values, pattern=table["pattern"], stride=stride, summary=min(table["summary"], stride), **lengths
            )
        if family == "linformer":
            return linformer_attention(queries, keys, values, self.key_projection, self.value_projection, **lengths)
        buckets = table["buckets"] or 2 ** max(0, math.ceil(math.log2(max(1.0, self.length / table["chunk"]))))
        return lsh_attention(
            queries, values, buckets=buckets, chunk=table["chunk"], rounds=table["rounds"], seed=table["seed"],
            layer=self.layer, **mask,
        )  # fmt: skip


class _TiedHead(nn.Module):
    """The bias of an output head whose weights are rows of the embedding."""

    def __init__(self, outputs):
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(outputs))


class SequenceModel(nn.Module):
    """A model of sequences that `linnet.torch.export` writes and `linnet.torch.import_` reads.

    ``SequenceModel(config)`` takes the tables ``model``, ``attention`` and ``image`` of config.json (docs/format.md), with its
    defaults, and has random weights. `SequenceModel.of` puts one together from modules of your own.

    Attributes
    ----------
    embedding : nn.Embedding, the tokens, then the start, mask or class tokens
    positions : nn.Parameter [length, width], or None
    encoder : TransformerEncoder
    head : nn.Linear
    config : dict, the three tables
    files : dict, the bytes of labels.json and tokenizer.model of an imported model that has them, which `export` writes
    """

    def __init__(self, config=None):
        super().__init__()
        config = {} if config is None else config
        if not isinstance(config, Mapping):
            refuse_type("model", "a dictionary with the tables model, attention and image", type(config).__name__)
        unknown = set(config) - {"model", "attention", "image", "model_type", "format", "training", "data"}
        if unknown:
            refuse("model", "the tables model, attention and image", ", ".join(sorted(map(str, unknown))))
        model = _table("model", config.get("model", {}), MODEL)
        attention = _table("attention", config.get("attention", {}), ATTENTION)
        self.config = {"model": model, "attention": attention, "image": _table("image", config.get("image", {}), IMAGE)}
        width, heads = model["width"], model["heads"]
        if width % heads:
            refuse("model", "heads that divide the width", f"{heads} heads of width {width}")
        _check_tables(model, attention, self.config["image"])
        causal = model["objective"] == "next-token"
        layers, shared = [], None
        for layer in range(model["layers"]):
            inner = ConfiguredAttention(attention, heads, model["length"], causal, layer, shared)
            shared = getattr(inner, "key_projection", None)
            layers.append(
                TransformerEncoderLayer(
                    AttentionLayer(inner, width, heads),
                    width,
                    model["feed_forward"],
                    model["dropout"],
                    model["activation"],
                    norm=model["norm"],
                )
            )
        self._set(
            nn.Embedding(model["vocabulary"] + max(model["classes"], 1), width),
            TransformerEncoder(layers, nn.LayerNorm(width) if model["norm"] == "pre" else None),
            _TiedHead(self._outputs()) if model["tied_output"] else nn.Linear(width, self._outputs()),
            nn.Parameter(torch.randn(model["length"], width) * 0.02) if model["positions"] == "learned" else None,
        )
        nn.init.normal_(self.embedding.weight, std=0.02 if model["positions"] == "learned" else 1 / math.sqrt(width))

    def _set(self, embedding, encoder, head, positions):
        self.embedding = embedding
        self.positions = positions
        self.encoder = encoder
        self.head = head
        self.files = {}

    def _outputs(self):
        model = self.config["model"]
        return 3 * model["mixtures"] if model["head"] == "logistics" else model["vocabulary"]

    @classmethod
    def of(cls, embedding, encoder, head, *, vocabulary, length, positions="none", image=None):
        """A model from an nn.Embedding of vocabulary + 1 tokens (the last is the start token) or vocabulary + classes, a
        `TransformerEncoder` and an nn.Linear to `vocabulary` logits. `positions` is an nn.Parameter [length, width], "sinusoidal"
        or "none". The encoder attends causally. The parts are kept, not copied; those that no file describes are refused."""
        operation = "model"
        named = isinstance(positions, str)
        if not isinstance(positions, nn.Parameter) and not (named and positions in ("sinusoidal", "none")):
            found = repr(positions) if named else type(positions).__name__
            refuse(operation, "positions as an nn.Parameter, 'sinusoidal' or 'none'", found)
        _check_kind(head, nn.Linear, "head")
        model, attention = _tables_of(embedding, encoder)
        width = model["width"]
        classes = embedding.num_embeddings - vocabulary
        if classes < 1:
            refuse(operation, f"an embedding of more than {vocabulary} tokens", f"{embedding.num_embeddings}")
        _check_linear(head, "head", width, vocabulary)
        model.update(vocabulary=vocabulary, length=length, classes=classes if classes > 1 else 0)
        model["positions"] = "learned" if isinstance(positions, nn.Parameter) else positions
        if isinstance(positions, nn.Parameter) and tuple(positions.shape) != (length, width):
            refuse(operation, f"positions [{length}, {width}]", f"{list(positions.shape)}")
        result = cls.__new__(cls)
        nn.Module.__init__(result)
        result.config = {
            "model": _table("model", model, MODEL),
            "attention": _table("attention", attention, ATTENTION),
            "image": _table("image", image or {}, IMAGE),
        }
        _check_tables(*result.config.values())
        result._set(embedding, encoder, head, positions if isinstance(positions, nn.Parameter) else None)
        return result

    def _inputs(self, tokens, label):
        model = self.config["model"]
        vocabulary, masked = model["vocabulary"], model["objective"] == "masked"
        if not torch.compiler.is_compiling() and tokens.is_cpu and tokens.numel() > 0:
            least, most = (int(bound) for bound in tokens.aminmax())
            if least < -masked or most >= vocabulary:
                refuse("model", f"tokens in {-masked} ... {vocabulary - 1}", f"{least} ... {most}")
        if masked:
            return torch.where(tokens < 0, vocabulary, tokens)
        first = torch.full_like(tokens[:, :1], vocabulary)
        if label is not None:
            first = first + self._labels(label, len(tokens)).to(tokens).reshape(-1, 1)
        return torch.cat([first, tokens[:, :-1]], 1)

    def _labels(self, label, batch):
        """Labels [1 or batch], int64."""
        classes = self.config["model"]["classes"]
        if classes == 0:
            refuse("model", "no label for a model without classes", "one")
        labels = label
        if not isinstance(label, torch.Tensor):
            labels = numbers("model", "label", [label] if np.ndim(label) == 0 else label)
        if labels.dtype not in (torch.int64, torch.int32) or labels.dim() > 1 or labels.numel() not in (1, batch):
            refuse("model", f"1 or {batch} labels of int64", f"{labels.dtype} {list(labels.shape)}")
        if not torch.compiler.is_compiling() and labels.is_cpu and labels.numel() > 0:
            least, most = (int(bound) for bound in labels.aminmax())
            if least < 0 or most >= classes:
                refuse("model", f"labels in 0 ... {classes - 1}", f"{least} ... {most}")
        return labels

    def hidden(self, tokens, label=None):
        """The rows [batch, length, width] that the output head takes."""
        model = self.config["model"]
        if not isinstance(tokens, torch.Tensor):
            refuse_type("model", "tokens as a torch.Tensor", type(tokens).__name__)
        if tokens.dim() != 2 or tokens.dtype not in (torch.int64, torch.int32):
            refuse("model", "tokens [batch, length] of int64", f"{tokens.dtype} {list(tokens.shape)}")
        if self.positions is not None and tokens.shape[1] > len(self.positions):
            refuse("model", f"at most {len(self.positions)} tokens, the learned positions", str(tokens.shape[1]))
        x = self.embedding(self._inputs(tokens.long(), label))
        length = x.shape[1]
        if self.positions is not None:
            x = x + self.positions[:length]
        elif model["positions"] == "sinusoidal":
            x = x + _sinusoids(length, model["width"], x.device).to(x)
        mask = TriangularCausalMask(length, x.device) if model["objective"] == "next-token" else None
        return self.encoder(x, attn_mask=mask)

    def forward(self, tokens, label=None):
        """Logits [batch, length, vocabulary] of every token of tokens [batch, length], given those before it, as
        `linnet.Model.logits`: the first from the start token, or the class token of `label`. A masked model predicts position i
        from the tokens on both sides, and -1 stands for a hidden token."""
        model = self.config["model"]
        x = self.hidden(tokens, label)
        if model["tied_output"]:
            parameters = F.linear(x, self.embedding.weight[: model["vocabulary"]], self.head.bias)
        else:
            parameters = self.head(x)
        return _logistics(parameters, model["vocabulary"]) if model["head"] == "logistics" else parameters


def _sinusoids(length, width, device):
    column = torch.arange(width, dtype=torch.float64, device=device)
    row = torch.arange(length, dtype=torch.float64, device=device)[:, None]
    angle = row / 10000.0 ** (column.div(2, rounding_mode="floor") * 2 / width)
    return torch.where(column % 2 == 0, angle.sin(), angle.cos())


def _logistics(parameters, levels):
    """Log-probabilities [..., levels] of a mixture of discretised logistics (Salimans et al. 2017)."""
    weight, mean, log_scale = parameters[..., None, :].chunk(3, -1)
    centred = (-1 + 2 * torch.arange(levels, device=parameters.device) / (levels - 1)).to(parameters)[:, None] - mean
    inverse = torch.exp(-log_scale.clamp(min=-7))
    half = 1 / (levels - 1)
    a, b = (centred + half) * inverse, (centred - half) * inverse
    below, above = F.logsigmoid(a), F.logsigmoid(-b)
    inside = below + above + torch.log(-torch.expm1(-2 * half * inverse))
    level = torch.arange(levels, device=parameters.device)[:, None]
    log_p = torch.where(level == 0, below, torch.where(level == levels - 1, above, inside))
    return torch.logsumexp(weight + log_p, -1) - torch.logsumexp(weight, -1)


_NORM_EPS = 1e-5


def _check_kind(part, kind, name):
    """Throws unless a part is a module of `kind` and computes what that does."""
    if not isinstance(part, kind):
        refuse_type("export", f"{name} of {kind.__name__}", type(part).__name__)
    if type(part).forward is not kind.forward or "forward" in vars(part):
        refuse_type("export", f"{name} with the forward of {kind.__name__}", f"another of {type(part).__name__}")
    if has_forward_hooks(part):
        refuse("export", f"{name} without forward hooks", "one with them")


def _check_linear(part, name, inputs, outputs):
    _check_kind(part, nn.Linear, name)
    if (part.in_features, part.out_features) != (inputs, outputs) or part.bias is None:
        found = f"one from {part.in_features} to {part.out_features}" + (" without a bias" if part.bias is None else "")
        refuse("export", f"{name} with a bias from {inputs} to {outputs}", found)


def _check_norm(part, name, width):
    _check_kind(part, nn.LayerNorm, name)
    if tuple(part.normalized_shape) != (width,) or part.weight is None or part.bias is None:
        found = f"one of {list(part.normalized_shape)}" + (" without them" if part.weight is None or part.bias is None else "")
        refuse("export", f"{name} with a weight and a bias of width {width}", found)
    if part.eps != _NORM_EPS:
        refuse("export", f"{name} with eps {_NORM_EPS}", str(part.eps))


def _tables_of(embedding, encoder):
    """The tables model and attention that describe the parts of a model. Throws for parts that a file cannot describe."""
    _check_kind(embedding, nn.Embedding, "embedding")
    if embedding.max_norm is not None:
        refuse("export", "an embedding without max_norm", str(embedding.max_norm))
    _check_kind(encoder, TransformerEncoder, "encoder")
    width = embedding.embedding_dim
    tables = [_layer_tables(layer, place, width) for place, layer in enumerate(encoder.layers)]
    if not tables or any(table != tables[0] for table in tables):
        refuse("export", "layers that are alike", f"{len(tables)} layers of several kinds" if tables else "none")
    model, attention = tables[0]
    if model["norm"] == "post" and encoder.norm is not None:
        refuse("export", "no final normalisation after layers with norm 'post' (final_normalization=False)", "one")
    if model["norm"] == "pre":
        if encoder.norm is None:
            refuse("export", "a final normalisation after layers with norm 'pre'", "none")
        _check_norm(encoder.norm, "the final normalisation", width)
    return {**model, "layers": len(tables), "width": width}, dict(attention)


def check_parts(model):
    """Throws unless a model and its parts compute what its configuration describes."""
    _check_kind(model, SequenceModel, "a model")
    if type(model).hidden is not SequenceModel.hidden:
        refuse_type("export", "a model with the rows of SequenceModel.hidden", f"others of {type(model).__name__}")
    tables = dict(zip(("model", "attention"), _tables_of(model.embedding, model.encoder)))
    for name, table in tables.items():
        for key, value in table.items():
            if key != "dropout" and model.config[name][key] != value:
                refuse("export", f"{name}.{key} {model.config[name][key]!r}, as when the model was made", repr(value))
    if not isinstance(model.head, _TiedHead):
        _check_linear(model.head, "head", model.config["model"]["width"], model._outputs())


def _layer_tables(layer, place, width):
    """The tables model and attention that describe a layer of an encoder."""
    operation = "export"
    _check_kind(layer, TransformerEncoderLayer, f"layer {place}")
    outer = layer.attention
    _check_kind(outer, AttentionLayer, "attention")
    heads, hidden = outer.n_heads, getattr(layer.linear1, "out_features", 0)
    for name in ("query_projection", "key_projection", "value_projection", "out_projection"):
        part = getattr(outer, name)
        if {getattr(part, "in_features", width), getattr(part, "out_features", width)} != {width}:
            refuse(operation, f"queries, keys and values of the model's width {width}", f"{name} of another")
        _check_linear(part, name, width, width)
    _check_linear(layer.linear1, "linear1", width, hidden)
    _check_linear(layer.linear2, "linear2", hidden, width)
    _check_norm(layer.norm1, "norm1", width)
    _check_norm(layer.norm2, "norm2", width)
    _check_kind(layer.dropout, nn.Dropout, "dropout")
    activation = name_of_activation(layer.activation)
    if activation is None:
        found = getattr(layer.activation, "__name__", type(layer.activation).__name__)
        refuse(operation, "the activation gelu, gelu-tanh or relu", found)
    model = {
        "heads": heads,
        "feed_forward": hidden,
        "norm": "pre" if layer.pre_norm else "post",
        "activation": activation,
        "dropout": layer.dropout.p,
    }
    return model, _attention_table(outer.inner_attention, width // heads, place)


_ATTENTIONS = (
    ConfiguredAttention, LinearAttention, CausalLinearAttention, FullAttention, LocalAttention, StridedAttention, FavorAttention,
)  # fmt: skip


def _attention_table(inner, head_dim, place):
    operation = "export"
    scale = getattr(inner, "softmax_temp", None)
    if scale is not None and abs(scale - head_dim**-0.5) > 1e-6:
        refuse(operation, "the default softmax_temp", f"{scale}")
    for kind in _ATTENTIONS:
        if isinstance(inner, kind):
            _check_kind(inner, kind, "attention")
    if isinstance(inner, ConfiguredAttention):
        return inner.table
    if isinstance(inner, (LinearAttention, CausalLinearAttention)):
        if not is_elu(inner.feature_map):
            refuse(operation, "the feature map elu(x) + 1", type(inner.feature_map).__name__)
        return {"family": "linear", "feature_map": "elu", "epsilon": inner.eps}
    if isinstance(inner, FullAttention):
        return {"family": "softmax"}
    if isinstance(inner, LocalAttention):
        return {"family": "local", "window": inner.local_context // 2}
    if isinstance(inner, StridedAttention):
        if not inner.options["stride"]:
            refuse(operation, "a strided_stride of at least 1", "0, which stands for one of the length of each input")
        return {"family": "strided", **inner.options}
    if isinstance(inner, FavorAttention):
        if inner.layer != place:
            refuse(operation, f"a FavorAttention with `layer` {place}, its place, as builders set it", f"{inner.layer}")
        return {
            "family": "linear",
            "feature_map": inner.favor_feature_map,
            "features": inner.favor_features,
            "directions": inner.favor_directions,
            "seed": inner.favor_seed,
        }
    refuse_type(
        operation,
        "linear, full, local, strided or favor attention, or a SequenceModel made from a configuration",
        type(inner).__name__,
    )
