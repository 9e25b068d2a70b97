"""Encoders and decoders of transformers around any attention. Tensors are [N, L, E]: batch, length, width."""

from __future__ import annotations

import torch.nn.functional as F
from torch.nn import GELU, Dropout, LayerNorm, Linear, Module, ModuleList, ReLU

from .events import EventDispatcher
from .masking import FullMask, LengthMask


def _gelu_tanh(x):
    return F.gelu(x, approximate="tanh")


def activation_of(name):
    """relu, gelu-tanh (Linnet's), or gelu by any other name; a function or module is its own."""
    if callable(name):
        return name
    return {"relu": F.relu, "gelu-tanh": _gelu_tanh}.get(name, F.gelu)


def has_forward_hooks(module):
    return bool(module._forward_hooks or module._forward_pre_hooks)


def name_of_activation(function):
    """The name that `activation_of` takes, or None for a function or module of another kind."""
    if isinstance(function, Module) and has_forward_hooks(function):
        return None
    if type(function) is GELU:
        return "gelu-tanh" if function.approximate == "tanh" else "gelu"
    if type(function) is ReLU:
        return "relu"
    return {F.relu: "relu", _gelu_tanh: "gelu-tanh", F.gelu: "gelu"}.get(function)


def _lengths(x, mask):
    return LengthMask.whole(x.shape[0], x.shape[1], x.device) if mask is None else mask


def _pairs(x, other, mask):
    return FullMask(x.shape[1], other.shape[1], device=x.device) if mask is None else mask


class TransformerEncoderLayer(Module):
    """Self attention and a feed-forward network, each with a residual and a normalisation.

    `d_ff` is 4 d_model by default and `activation` 'relu', 'gelu' or a function or module of your own. With ``norm="pre"`` (Linnet's,
    not of fast-transformers) the normalisations stand before the branches: y = x + A(norm1(x)), then y + G(norm2(y)).
    """

    def __init__(self, attention, d_model, d_ff=None, dropout=0.1, activation="relu", event_dispatcher="", norm="post"):
        super().__init__()
        if norm not in ("pre", "post"):
            raise ValueError(f"[encoder layer] expected norm 'pre' or 'post', got {norm!r}")
        d_ff = d_ff or 4 * d_model
        self.attention = attention
        self.linear1 = Linear(d_model, d_ff)
        self.linear2 = Linear(d_ff, d_model)
        self.norm1 = LayerNorm(d_model)
        self.norm2 = LayerNorm(d_model)
        self.dropout = Dropout(dropout)
        self.activation = activation_of(activation)
        self.pre_norm = norm == "pre"
        self.event_dispatcher = EventDispatcher.get(event_dispatcher)

    def _feed_forward(self, x):
        return self.dropout(self.linear2(self.dropout(self.activation(self.linear1(x)))))

    def forward(self, x, attn_mask=None, length_mask=None, return_state=False):
        """x [N, L, d_model]; `attn_mask` says what a position attends to, `length_mask` how long the sequences are.

        With `return_state` (linear, causal-linear and favor attention, causal mask) the state that the recurrent layer continues
        is a second result.
        """
        attn_mask, length_mask = _pairs(x, x, attn_mask), _lengths(x, length_mask)
        given = {"attn_mask": attn_mask, "query_lengths": length_mask, "key_lengths": length_mask}
        if return_state:
            given["return_state"] = True
        y = self.norm1(x) if self.pre_norm else x
        attended = self.attention(y, y, y, **given)
        attended, state = attended if return_state else (attended, None)
        x = x + self.dropout(attended)
        if self.pre_norm:
            x = x + self._feed_forward(self.norm2(x))
        else:
            x = self.norm1(x)
            x = self.norm2(x + self._feed_forward(x))
        return (x, state) if return_state else x


class TransformerEncoder(Module):
    """Layers, one after another, and an optional normalisation."""

    def __init__(self, layers, norm_layer=None, event_dispatcher=""):
        super().__init__()
        self.layers = ModuleList(layers)
        self.norm = norm_layer
        self.event_dispatcher = EventDispatcher.get(event_dispatcher)

    def forward(self, x, attn_mask=None, length_mask=None, return_state=False):
        """x [N, L, d_model], and with `return_state` the states of the layers that the recurrent encoder continues after x."""
        masks = {"attn_mask": _pairs(x, x, attn_mask), "length_mask": _lengths(x, length_mask)}
        states = []
        for layer in self.layers:
            if return_state:
                x, state = layer(x, **masks, return_state=True)
                states.append(state)
            else:
                x = layer(x, **masks)
        x = x if self.norm is None else self.norm(x)
        return (x, states) if return_state else x


class TransformerDecoderLayer(Module):
    """Self attention, attention to a memory and a feed-forward network, each with a residual and a normalisation after it."""

    def __init__(
        self,
        self_attention,
        cross_attention,
        d_model,
        d_ff=None,
        dropout=0.1,
        activation="relu",
        event_dispatcher="",
    ):
        super().__init__()
        d_ff = d_ff or 4 * d_model
        self.self_attention = self_attention
        self.cross_attention = cross_attention
        self.linear1 = Linear(d_model, d_ff)
        self.linear2 = Linear(d_ff, d_model)
        self.norm1 = LayerNorm(d_model)
        self.norm2 = LayerNorm(d_model)
        self.norm3 = LayerNorm(d_model)
        self.dropout = Dropout(dropout)
        self.activation = activation_of(activation)
        self.event_dispatcher = EventDispatcher.get(event_dispatcher)

    def forward(self, x, memory, x_mask=None, x_length_mask=None, memory_mask=None, memory_length_mask=None):
        """x [N, L, d_model], memory [N, S, width]; the masks are those of x and of the memory."""
        x_mask, x_length_mask = _pairs(x, x, x_mask), _lengths(x, x_length_mask)
        memory_mask, memory_length_mask = _pairs(x, memory, memory_mask), _lengths(memory, memory_length_mask)
        attended = self.self_attention(x, x, x, attn_mask=x_mask, query_lengths=x_length_mask, key_lengths=x_length_mask)
        x = self.norm1(x + self.dropout(attended))
        attended = self.cross_attention(
            x,
            memory,
            memory,
            attn_mask=memory_mask,
            query_lengths=x_length_mask,
            key_lengths=memory_length_mask,
        )
        x = self.norm2(x + self.dropout(attended))
        y = self.dropout(self.linear2(self.dropout(self.activation(self.linear1(x)))))
        return self.norm3(x + y)


class TransformerDecoder(Module):
    """Layers, one after another, and an optional normalisation."""

    def __init__(self, layers, norm_layer=None, event_dispatcher=""):
        super().__init__()
        self.layers = ModuleList(layers)
        self.norm = norm_layer
        self.event_dispatcher = EventDispatcher.get(event_dispatcher)

    def forward(self, x, memory, x_mask=None, x_length_mask=None, memory_mask=None, memory_length_mask=None):
        masks = {
            "x_mask": _pairs(x, x, x_mask),
            "x_length_mask": _lengths(x, x_length_mask),
            "memory_mask": _pairs(x, memory, memory_mask),
            "memory_length_mask": _lengths(memory, memory_length_mask),
        }
        for layer in self.layers:
            x = layer(x, memory, **masks)
        return x if self.norm is None else self.norm(x)
