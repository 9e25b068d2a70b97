"""The attentions of fast-transformers that Linnet has, and Linnet's own, as modules.

Their `forward` takes queries [N, L, H, E], keys [N, S, H, E], values [N, S, H, D], an attention mask and the lengths of queries
and keys as masks, and returns [N, L, H, D]. Attention dropout is accepted and not applied, since the weights of all pairs never
exist.
"""

from __future__ import annotations

import warnings

import torch
from torch.nn import Linear, Module

from .._arguments import NAMES
from .._functions import (
    favor_attention,
    linear_attention,
    linformer_attention,
    local_attention,
    lsh_attention,
    softmax_attention,
    strided_attention,
)
from .attention_registry import AttentionRegistry, Bool, Callable, Choice, EventDispatcherInstance, Float, Int, Optional
from .events import EventDispatcher
from .feature_maps import elu_feature_map, is_elu
from .masking import linnet_mask
from .recurrent._utils import LinearState


class AttentionLayer(Module):
    """Projections to queries, keys and values of `n_heads` heads, an inner attention, and a projection of its output.

    `d_keys` and `d_values` are the sizes of a head, d_model / n_heads by default; `d_model_keys` is the width of what keys and
    values are made of.
    """

    def __init__(self, attention, d_model, n_heads, d_keys=None, d_values=None, d_model_keys=None, event_dispatcher=""):
        super().__init__()
        d_keys = d_keys or d_model // n_heads
        d_values = d_values or d_model // n_heads
        d_model_keys = d_model_keys or d_model
        self.inner_attention = attention
        self.query_projection = Linear(d_model, d_keys * n_heads)
        self.key_projection = Linear(d_model_keys, d_keys * n_heads)
        self.value_projection = Linear(d_model_keys, d_values * n_heads)
        self.out_projection = Linear(d_values * n_heads, d_model)
        self.n_heads = n_heads
        self.event_dispatcher = EventDispatcher.get(event_dispatcher)

    def forward(self, queries, keys, values, attn_mask, query_lengths, key_lengths, return_state=False):
        """queries [N, L, d_model], keys and values [N, S, d_model_keys] to [N, L, d_model], and with `return_state` the state of
        the attention."""
        if return_state and not getattr(self.inner_attention, "returns_state", False):
            name = type(self.inner_attention).__name__
            raise ValueError(f"[attention] expected linear, causal-linear or favor attention with return_state, got {name}")
        heads = self.n_heads
        queries, keys, values = (
            projection(x).unflatten(-1, (heads, -1))
            for projection, x in (
                (self.query_projection, queries),
                (self.key_projection, keys),
                (self.value_projection, values),
            )
        )
        masks = (attn_mask, query_lengths, key_lengths)
        if return_state:
            out, state = self.inner_attention(queries, keys, values, *masks, return_state=True)
            return self.out_projection(out.flatten(-2)), state
        return self.out_projection(self.inner_attention(queries, keys, values, *masks).flatten(-2))


class _Attention(Module):
    """What the attentions share: a dispatcher of events that is never called, and a dropout that is not applied.

    `layer` is the place in a transformer, which builders set: beside the seed it decides the random directions. With
    `returns_state` an attention takes ``return_state=True`` for a causal mask: its results are then the output and the state that
    its recurrent form continues.
    """

    layer = 0
    returns_state = False

    def __init__(self, attention_dropout=0.0, event_dispatcher=""):
        super().__init__()
        self.attention_dropout = attention_dropout
        self.event_dispatcher = EventDispatcher.get(event_dispatcher)
        if attention_dropout > 0:
            warnings.warn(
                f"[{type(self).__name__}] expected no attention dropout, got {attention_dropout}, which is not applied",
                stacklevel=4,
            )


class FullAttention(_Attention):
    """softmax(softmax_temp Q K^T) V; `softmax_temp` is 1/sqrt(E) by default."""

    def __init__(self, softmax_temp=None, attention_dropout=0.0, event_dispatcher=""):
        super().__init__(attention_dropout, event_dispatcher)
        self.softmax_temp = softmax_temp

    def forward(self, queries, keys, values, attn_mask, query_lengths, key_lengths):
        mask = linnet_mask(attn_mask, key_lengths, queries, keys)
        return softmax_attention(queries, keys, values, scale=self.softmax_temp or 0.0, **mask)


class _FeatureAttention(_Attention):
    returns_state = True

    def __init__(self, query_dimensions, feature_map=None, eps=1e-6, event_dispatcher=""):
        super().__init__(event_dispatcher=event_dispatcher)
        self.feature_map = (feature_map or elu_feature_map)(query_dimensions)
        self.eps = eps

    def _attend(self, queries, keys, values, return_state, **mask):
        chosen = "elu"
        self.feature_map.new_feature_map(queries.device)
        if not is_elu(self.feature_map):
            chosen = "identity"
            queries = self.feature_map.forward_queries(queries)
            keys = self.feature_map.forward_keys(keys)
        result = linear_attention(
            queries, keys, values, feature_map=chosen, epsilon=self.eps, return_state=return_state, **mask
        )
        return (result[0], LinearState(result[1], *values.shape[2:])) if return_state else result


class LinearAttention(_FeatureAttention):
    """phi(Q) (phi(K)^T V) / (phi(Q) sum phi(K) + eps), with any mask.

    `feature_map` is a factory of `feature_maps`, elu(x) + 1 by default.
    """

    def forward(self, queries, keys, values, attn_mask, query_lengths, key_lengths, return_state=False):
        return self._attend(queries, keys, values, return_state, **linnet_mask(attn_mask, key_lengths, queries, keys))


class CausalLinearAttention(_FeatureAttention):
    """The same with the causal mask, which `attn_mask` must be. Keys without a query of their position count for nothing."""

    def forward(self, queries, keys, values, attn_mask, query_lengths, key_lengths, return_state=False):
        if not attn_mask.lower_triangular:
            raise RuntimeError("[causal-linear] expected a lower triangular mask, got another")
        length, count = queries.shape[1], keys.shape[1]
        mask = linnet_mask(attn_mask, key_lengths, queries, keys)
        mask["mask"] = "causal"
        if count > length:
            keys, values = keys[:, :length], values[:, :length]
            if "key_lengths" in mask:
                mask["key_lengths"] = mask["key_lengths"].clamp(max=length)
        elif count < length:
            keys, values = (torch.nn.functional.pad(x, (0, 0, 0, 0, 0, length - count)) for x in (keys, values))
            mask.setdefault("key_lengths", torch.full((len(keys),), count, device="cpu"))
        return self._attend(queries, keys, values, return_state, **mask)


class LocalAttention(_Attention):
    """Softmax over the `local_context` keys around the query: i - local_context // 2 and those after it."""

    def __init__(self, local_context, softmax_temp=None, attention_dropout=0.0, event_dispatcher=""):
        super().__init__(attention_dropout, event_dispatcher)
        self.local_context = local_context
        self.softmax_temp = softmax_temp

    def forward(self, queries, keys, values, attn_mask, query_lengths, key_lengths):
        left = self.local_context // 2
        return local_attention(
            queries,
            keys,
            values,
            left=left,
            right=self.local_context - left - 1,
            scale=self.softmax_temp or 0.0,
            **linnet_mask(attn_mask, key_lengths, queries, keys),
        )


class ReformerAttention(_Attention):
    """Softmax over the keys that share a hash with the query (Kitaev et al. 2020), keys being the queries of unit length.

    `bits` directions give 2 `bits` buckets. Rounds are combined by their sums of weights, where fast-transformers takes their
    mean, and a query attends to itself only where it meets no other key, whatever `masked` says. `reformer_seed` decides the
    directions.
    """

    def __init__(
        self,
        chunk_size=32,
        bits=8,
        rounds=4,
        masked=False,
        softmax_temp=None,
        attention_dropout=0.0,
        event_dispatcher="",
        reformer_seed=0,
    ):
        super().__init__(attention_dropout, event_dispatcher)
        self.chunk_size = chunk_size
        self.bits = bits
        self.rounds = rounds
        self.masked = masked
        self.softmax_temp = softmax_temp
        self.reformer_seed = reformer_seed

    def forward(self, queries, keys, values, attn_mask, query_lengths, key_lengths):
        return lsh_attention(
            queries,
            values,
            buckets=2 * self.bits,
            chunk=self.chunk_size,
            rounds=self.rounds,
            seed=self.reformer_seed,
            layer=self.layer,
            scale=self.softmax_temp or 0.0,
            **linnet_mask(attn_mask, key_lengths, queries, keys),
        )


class FavorAttention(_Attention):
    """Linear attention with positive random features, which approximates FullAttention (Choromanski et al. 2021), with any mask.

    `favor_features` is their number, E ln E by default; `favor_seed` decides the directions. `favor_feature_map` and
    `favor_directions` are those of `linnet.torch.favor_attention`: the map `Favor` of fast-transformers is favor-hyperbolic.
    """

    returns_state = True

    def __init__(
        self, favor_features=0, favor_seed=0, event_dispatcher="", favor_feature_map="favor", favor_directions="auto"
    ):
        super().__init__(event_dispatcher=event_dispatcher)
        self.favor_features = favor_features
        self.favor_seed = favor_seed
        self.favor_feature_map = favor_feature_map
        self.favor_directions = favor_directions

    def forward(self, queries, keys, values, attn_mask, query_lengths, key_lengths, return_state=False):
        result = favor_attention(
            queries,
            keys,
            values,
            feature_map=self.favor_feature_map,
            features=self.favor_features,
            directions=self.favor_directions,
            seed=self.favor_seed,
            layer=self.layer,
            return_state=return_state,
            **linnet_mask(attn_mask, key_lengths, queries, keys),
        )
        return (result[0], LinearState(result[1], *values.shape[2:], self.favor_feature_map)) if return_state else result


class LinformerAttention(_Attention):
    """Softmax over `linformer_rank` sums of keys and of values with learned weights (Wang et al. 2020), for at most
    `linformer_length` keys and the full mask. All heads share the weights."""

    def __init__(self, linformer_length, linformer_rank=128, softmax_temp=None, event_dispatcher=""):
        super().__init__(event_dispatcher=event_dispatcher)
        self.softmax_temp = softmax_temp
        rank = min(linformer_rank, linformer_length)
        self.key_projection = torch.nn.Parameter(torch.randn(1, rank, linformer_length) * linformer_length**-0.5)
        self.value_projection = torch.nn.Parameter(torch.randn(1, rank, linformer_length) * linformer_length**-0.5)

    def forward(self, queries, keys, values, attn_mask, query_lengths, key_lengths):
        mask = linnet_mask(attn_mask, key_lengths, queries, keys)
        if "mask" in mask:
            raise RuntimeError("[linformer] expected a mask that is all ones, got another")
        return linformer_attention(
            queries, keys, values, self.key_projection, self.value_projection, scale=self.softmax_temp or 0.0, **mask
        )


class StridedAttention(_Attention):
    """Causal softmax over a regular pattern of keys (Child et al. 2019); `attn_mask` must be causal."""

    def __init__(self, strided_pattern="strided", strided_stride=0, strided_summary=8, softmax_temp=None, event_dispatcher=""):
        super().__init__(event_dispatcher=event_dispatcher)
        self.options = {"pattern": strided_pattern, "stride": strided_stride, "summary": strided_summary}
        self.softmax_temp = softmax_temp

    def forward(self, queries, keys, values, attn_mask, query_lengths, key_lengths):
        if not attn_mask.lower_triangular:
            raise RuntimeError("[strided] expected a lower triangular mask, got another")
        mask = linnet_mask(attn_mask, key_lengths, queries, keys)
        mask.pop("mask", None)
        return strided_attention(queries, keys, values, scale=self.softmax_temp or 0.0, **self.options, **mask)


_TEMPERATURE = ("softmax_temp", Optional(Float))
_DROPOUT = ("attention_dropout", Optional(Float, 0.0))
_DISPATCHER = ("event_dispatcher", Optional(EventDispatcherInstance, ""))
_LINEAR = [("query_dimensions", Int), ("feature_map", Optional(Callable)), _DISPATCHER]
_FAVOR = [
    ("favor_features", Optional(Int, 0)),
    ("favor_seed", Optional(Int, 0)),
    ("favor_feature_map", Optional(Choice([name for name in NAMES["feature_map"] if name.startswith("favor")]), "favor")),
    ("favor_directions", Optional(Choice(NAMES["directions"]), "auto")),
    _DISPATCHER,
]
_REFORMER = [
    ("chunk_size", Optional(Int, 32)),
    ("bits", Optional(Int, 63)),
    ("rounds", Optional(Int, 4)),
    ("masked", Optional(Bool, False)),
    ("reformer_seed", Optional(Int, 0)),
    _TEMPERATURE,
    _DROPOUT,
    _DISPATCHER,
]

for _name in ("full", "softmax"):
    AttentionRegistry.register(_name, FullAttention, [_TEMPERATURE, _DROPOUT, _DISPATCHER])
AttentionRegistry.register("linear", LinearAttention, _LINEAR)
AttentionRegistry.register("causal-linear", CausalLinearAttention, _LINEAR)
AttentionRegistry.register("local", LocalAttention, [("local_context", Int), _TEMPERATURE, _DROPOUT, _DISPATCHER])
for _name in ("reformer", "lsh"):
    AttentionRegistry.register(_name, ReformerAttention, _REFORMER)
AttentionRegistry.register("favor", FavorAttention, _FAVOR)
AttentionRegistry.register(
    "linformer",
    LinformerAttention,
    [("linformer_length", Int), ("linformer_rank", Optional(Int, 128)), _TEMPERATURE, _DISPATCHER],
)
AttentionRegistry.register(
    "strided",
    StridedAttention,
    [
        ("strided_pattern", Optional(Choice(["strided", "fixed"]), "strided")),
        ("strided_stride", Optional(Int, 0)),
        ("strided_summary", Optional(Int, 8)),
        _TEMPERATURE,
        _DISPATCHER,
    ],
)
