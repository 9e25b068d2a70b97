"""Encoders and decoders in the recurrent form: [N, E] and a state of each layer to [N, E] and the new states. Their parameters
are those of the parallel forms."""

from __future__ import annotations

from torch.nn import Module, ModuleList

from ..events import EventDispatcher
from ..masking import LengthMask
from ..transformers import TransformerDecoderLayer, TransformerEncoderLayer
from ._utils import check_state


class RecurrentTransformerEncoderLayer(TransformerEncoderLayer):
    """`TransformerEncoderLayer` for one token per stream."""

    def forward(self, x, state=None, memory=None):
        """x [N, d_model] to the output [N, d_model] and the new state; `memory` is a deprecated name of `state`."""
        state = check_state(state, memory)
        if self.pre_norm:
            y = self.norm1(x)
            attended, state = self.attention(y, y, y, state)
            x = x + self.dropout(attended)
            return x + self._feed_forward(self.norm2(x)), state
        attended, state = self.attention(x, x, x, state)
        x = self.norm1(x + self.dropout(attended))
        return self.norm2(x + self._feed_forward(x)), state


class RecurrentTransformerEncoder(Module):
    """`TransformerEncoder` for one token per stream; the state is a list with that of each layer."""

    def __init__(self, layers, norm_layer=None, event_dispatcher=""):
        super().__init__()
        self.layers = ModuleList(layers)
        self.norm = norm_layer
        self.event_dispatcher = EventDispatcher.get(event_dispatcher)

    def forward(self, x, state=None, memory=None):
        state = check_state(state, memory)
        if state is None:
            state = [None] * len(self.layers)
        for i, layer in enumerate(self.layers):
            x, state[i] = layer(x, state[i])
        return x if self.norm is None else self.norm(x), state


class RecurrentTransformerDecoderLayer(TransformerDecoderLayer):
    """`TransformerDecoderLayer` for one token per stream; the state is [that of the self attention, that of the other]."""

    def forward(self, x, memory, memory_length_mask=None, state=None):
        """x [N, d_model], memory [N, S, width], read in full up to its lengths."""
        if memory_length_mask is None:
            memory_length_mask = LengthMask.whole(x.shape[0], memory.shape[1], x.device)
        self_state, cross_state = state or [None, None]
        attended, self_state = self.self_attention(x, x, x, state=self_state)
        x = self.norm1(x + self.dropout(attended))
        attended, cross_state = self.cross_attention(x, memory, memory, memory_length_mask, state=cross_state)
        x = self.norm2(x + self.dropout(attended))
        y = self.dropout(self.linear2(self.dropout(self.activation(self.linear1(x)))))
        return self.norm3(x + y), [self_state, cross_state]


class RecurrentTransformerDecoder(Module):
    """`TransformerDecoder` for one token per stream; the state is a list with that of each layer."""

    def __init__(self, layers, norm_layer=None, event_dispatcher=""):
        super().__init__()
        self.layers = ModuleList(layers)
        self.norm = norm_layer
        self.event_dispatcher = EventDispatcher.get(event_dispatcher)

    def forward(self, x, memory, memory_length_mask=None, state=None):
        if state is None:
            state = [None] * len(self.layers)
        for i, layer in enumerate(self.layers):
            x, state[i] = layer(x, memory, memory_length_mask=memory_length_mask, state=state[i])
        return x if self.norm is None else self.norm(x), state
