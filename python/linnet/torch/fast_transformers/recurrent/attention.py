"""Attentions of the recurrent form: one token per stream and call, with a state."""

from __future__ import annotations

import torch
from torch.nn import Linear, Module

from ..._functions import linear_attention_step, linear_state, softmax_attention
from ..attention import _DISPATCHER, _DROPOUT, _FAVOR, _LINEAR, _TEMPERATURE, AttentionLayer, _Attention
from ..attention_registry import RecurrentAttentionRegistry, RecurrentCrossAttentionRegistry
from ..events import EventDispatcher
from ..feature_maps import elu_feature_map, is_elu
from ..masking import lengths_of
from ._utils import LinearState, State, check_state, numbers_of


class RecurrentAttentionLayer(Module):
    """`AttentionLayer` for one token per stream: [N, d_model] and a state to [N, d_model] and the new state."""

    def __init__(self, attention, d_model, n_heads, d_keys=None, d_values=None, event_dispatcher=""):
        super().__init__()
        d_keys = d_keys or d_model // n_heads
        d_values = d_values or d_model // n_heads
        self.inner_attention = attention
        self.query_projection = Linear(d_model, d_keys * n_heads)
        self.key_projection = Linear(d_model, d_keys * n_heads)
        self.value_projection = Linear(d_model, d_values * n_heads)
        self.out_projection = Linear(d_values * n_heads, d_model)
        self.n_heads = n_heads
        self.event_dispatcher = EventDispatcher.get(event_dispatcher)

    def forward(self, query, key, value, state=None, memory=None):
        state = check_state(state, memory)
        heads = (self.n_heads, -1)
        out, state = self.inner_attention(
            self.query_projection(query).unflatten(-1, heads),
            self.key_projection(key).unflatten(-1, heads),
            self.value_projection(value).unflatten(-1, heads),
            state,
        )
        return self.out_projection(out.flatten(-2)), state


class RecurrentCrossAttentionLayer(AttentionLayer):
    """`AttentionLayer` for one query per stream: keys and values are projected in the first call, without a state."""

    def forward(self, query, keys, values, key_lengths, state=None):
        heads = (self.n_heads, -1)
        query = self.query_projection(query).unflatten(-1, heads)
        if state is None:
            keys = self.key_projection(keys).unflatten(-1, heads)
            values = self.value_projection(values).unflatten(-1, heads)
        else:
            keys = values = None
        out, state = self.inner_attention(query, keys, values, key_lengths, state=state)
        return self.out_projection(out.flatten(-2)), state


class RecurrentLinearAttention(_Attention):
    """Linear attention with the causal mask as a recurrence. The state is [S, z], S [N, H, F, M] and z [N, H, F]. Without
    gradients it is changed in place."""

    def __init__(self, query_dimensions, feature_map=None, eps=1e-6, event_dispatcher=""):
        super().__init__(event_dispatcher=event_dispatcher)
        self.feature_map = (feature_map or elu_feature_map)(query_dimensions)
        self.eps = eps

    def forward(self, query, key, value, state=None, memory=None):
        state = check_state(state, memory)
        if state is None:
            self.feature_map.new_feature_map(query.device)
        chosen = "elu"
        if not is_elu(self.feature_map):
            chosen = "identity"
            query, key = self.feature_map.forward_queries(query), self.feature_map.forward_keys(key)
        batch, heads, features = query.shape
        value_dim = value.shape[2]
        if state is None:
            dtype = torch.float64 if query.dtype == torch.float64 else torch.float32
            numbers = linear_state(batch, heads, features, value_dim, dtype=dtype)
        else:
            numbers = numbers_of(state)
        if len(numbers) != batch:
            raise ValueError(f"[recurrent linear] expected a state of {batch} streams, got one of {len(numbers)}")
        out, left = linear_attention_step(query, key, value, numbers, feature_map=chosen, epsilon=self.eps)
        if left is getattr(state, "numbers", None):
            return out, state
        return out, LinearState(left, heads, value_dim)


class RecurrentFavorAttention(_Attention):
    """`FavorAttention` with the causal mask as a recurrence, with the log-scales [N, H, 2] behind S and z in its state."""

    def __init__(
        self, favor_features=0, favor_seed=0, event_dispatcher="", favor_feature_map="favor", favor_directions="auto"
    ):
        super().__init__(event_dispatcher=event_dispatcher)
        self.options = {"feature_map": favor_feature_map, "features": favor_features}
        self.draw = {"directions": favor_directions, "seed": favor_seed}

    def forward(self, query, key, value, state=None, memory=None):
        state = check_state(state, memory)
        batch, heads, head_dim = query.shape
        if state is None:
            numbers = linear_state(batch, heads, head_dim, value.shape[2], **self.options)
        elif len(state) == 3 and len(state[0]) == batch:
            numbers = numbers_of(state)
        else:
            raise ValueError(f"[recurrent favor] expected a state of {batch} streams that this attention made, got another")
        out, left = linear_attention_step(query, key, value, numbers, layer=self.layer, **self.options, **self.draw)
        if left is getattr(state, "numbers", None):
            return out, state
        return out, LinearState(left, heads, value.shape[2], self.options["feature_map"])


class _Cache(State):
    """[keys, values], [N, H, S, E] and [N, H, S, D], the first S tokens of two tensors with room for more."""

    def __init__(self, room, length):
        super().__init__([part[:, :, :length] for part in room])
        self.room = room
        self.length = length


class _Room(list):
    """The tensors of a cache, and how many of their tokens are taken."""

    taken = 0


class RecurrentFullAttention(_Attention):
    """Softmax attention over the tokens so far. The state is [keys, values], [N, H, S, E] and [N, H, S, D]."""

    def __init__(self, softmax_temp=None, attention_dropout=0.0, event_dispatcher=""):
        super().__init__(attention_dropout, event_dispatcher)
        self.softmax_temp = softmax_temp

    def forward(self, query, key, value, state=None, memory=None):
        state = self._extended(check_state(state, memory), key[:, :, None], value[:, :, None])
        keys, values = state
        if len(keys) != len(query):
            raise ValueError(f"[recurrent full] expected a state of {len(query)} streams, got one of {len(keys)}")
        out = softmax_attention(query[:, None], keys.transpose(1, 2), values.transpose(1, 2), scale=self.softmax_temp or 0.0)
        return out[:, 0], state

    @staticmethod
    def _extended(state, key, value):
        if state is not None and len(state[0]) != len(key):
            raise ValueError(f"[recurrent full] expected a state of {len(key)} streams, got one of {len(state[0])}")
        given = [key, value] + list(state or [])
        if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in given):
            return [key, value] if state is None else [torch.cat(pair, 2) for pair in zip(state, (key, value))]
        length = 0 if state is None else state[0].shape[2]
        room = state.room if isinstance(state, _Cache) and state.is_as_made() else None
        if room is None or room.taken != length or room[0].shape[2] == length:
            room = _Room(part.new_empty(*part.shape[:2], max(16, 2 * length), part.shape[3]) for part in (key, value))
            for part, old in zip(room, state or ()):
                part[:, :, :length] = old
        for part, new in zip(room, (key, value)):
            part[:, :, length : length + 1] = new
        room.taken = length + 1
        return _Cache(room, length + 1)


class RecurrentCrossFullAttention(_Attention):
    """Softmax attention of one query per stream to a memory. The state is [keys, values], [N, S, H, E] and [N, S, H, D]."""

    def __init__(self, softmax_temp=None, attention_dropout=0.0, event_dispatcher=""):
        super().__init__(attention_dropout, event_dispatcher)
        self.softmax_temp = softmax_temp

    def forward(self, query, keys, values, key_lengths, state=None):
        if state is not None:
            keys, values = state
        whole = key_lengths.all_ones and key_lengths.shape[-1] == keys.shape[1]
        lengths = {} if whole else {"key_lengths": lengths_of(key_lengths, len(query))}
        out = softmax_attention(query[:, None], keys, values, scale=self.softmax_temp or 0.0, **lengths)
        return out[:, 0], [keys, values]


class RecurrentCrossLinearAttention(_Attention):
    """Linear attention of one query per stream to a memory. The state is [S, z], S [N, H, M, F] and z [N, H, F]."""

    def __init__(self, query_dimensions, feature_map=None, eps=1e-6, event_dispatcher=""):
        super().__init__(event_dispatcher=event_dispatcher)
        self.feature_map = (feature_map or elu_feature_map)(query_dimensions)
        self.eps = eps

    def forward(self, query, keys, values, key_lengths, state=None):
        if state is None:
            self.feature_map.new_feature_map(query.device)
            seen = torch.arange(keys.shape[1], device=keys.device)[None] < key_lengths.lengths[:, None]
            k = self.feature_map.forward_keys(keys) * seen[:, :, None, None]
            state = [torch.einsum("nshf,nshm->nhmf", k, values), k.sum(1)]
        s, z = state
        q = self.feature_map.forward_queries(query)
        denominator = torch.einsum("nhf,nhf->nh", q, z) + self.eps
        return torch.einsum("nhf,nhmf->nhm", q, s) / denominator[..., None], state


for _name in ("linear", "causal-linear"):
    RecurrentAttentionRegistry.register(_name, RecurrentLinearAttention, _LINEAR)
RecurrentAttentionRegistry.register("favor", RecurrentFavorAttention, _FAVOR)
for _name in ("full", "softmax"):
    RecurrentAttentionRegistry.register(_name, RecurrentFullAttention, [_TEMPERATURE, _DROPOUT, _DISPATCHER])
    RecurrentCrossAttentionRegistry.register(_name, RecurrentCrossFullAttention, [_TEMPERATURE, _DROPOUT, _DISPATCHER])
RecurrentCrossAttentionRegistry.register("linear", RecurrentCrossLinearAttention, _LINEAR)
