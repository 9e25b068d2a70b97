"""Attention on tensors of the CPU: the functions of linnet.torch."""

from __future__ import annotations

import functools
import math

import torch

from . import _reference
from ._arguments import (
    Mask,
    autocast,
    check_options,
    check_tensor,
    default_features,
    float_rows,
    mask_of,
    refuse,
    refuse_type,
    sequences,
    whole,
)
from ._operators import attention, attention_step, check_by_core, is_log_scaled, read_options, state_floats, write_options

_MASKS = """
    mask : {"full", "causal"} or bool tensor [queries, keys], [batch, queries, keys] or [batch, 1, queries, keys]
        Which keys a query sees (True). A query that sees no key gives zeros.
    prefix : int, sequence of int or int64 tensor [batch or 1], optional
        Query i of batch entry b sees the keys up to max(i, prefix[b] - 1).
    window : (left, right) or left, optional
        Query i sees the keys i - left ... i + right; without `right` none after itself.
    intervals : (begin, end), optional
        Query i sees the keys begin[i] ... end[i] - 1; neither may decrease.
    key_lengths : sequence of int or int64 tensor [batch], optional
        Batch entry b has key_lengths[b] keys; those after them are padding.
    segments : sequence of int, or one per batch entry, optional
        Bounds of packed sequences, from 0 to the length: no query sees a key across one.
    layout : {"bnhd", "bhnd"}
        Order of the axes of q, k, v and of the result: [batch, length, heads, dim] or [batch, heads, length, dim]."""


def _documented(function):
    function.__doc__ = function.__doc__.replace("{masks}", _MASKS.strip())
    return function


def _call(
    operation, q, k, v, mask: Mask, options: str, layout, *, decay=None, projections=(None, None), initial=None, state=False
):
    """The operator, and its output in the caller's layout."""
    out, final = attention(
        q, k, v, decay, *projections, initial,
        mask.kind, mask.left, mask.right, mask.bounds, mask.key_lengths, mask.segments, mask.visible,
        options, layout == "bhnd", state,
    )  # fmt: skip
    out = out.transpose(1, 2) if layout == "bhnd" else out
    return (out, final) if state else out


def _shown(out, layout):
    return out.transpose(1, 2) if layout == "bhnd" else out


def _seen(q, k, mask):
    return _reference.visible_keys(q.shape[0], q.shape[1], k.shape[1], mask, q.device)


def _softmax_of_float64(q, k, v, mask, scale, options, layout, near=None):
    """Softmax over the keys that the mask and `near` show."""
    check_by_core(q, k, v, mask, options)
    k, v = _reference.without_padding(k, v, mask.key_lengths)
    seen = _seen(q, k, mask)
    return _shown(_reference.softmax(q, k, v, seen if near is None else seen & near, scale or q.shape[3] ** -0.5), layout)


def linear_options(*arguments, **options) -> str:
    """The options of the linear family as the operators take them; the texts of earlier calls are kept."""
    if torch.compiler.is_compiling():
        return _linear_options(*arguments, **options)
    try:
        return _known_options(*arguments, **options)
    except TypeError:  # also for what cannot be looked up: the check says what is wrong with it
        return _linear_options(*arguments, **options)


def _linear_options(
    head_dim: int,
    feature_map="elu",
    alpha=1.0,
    features=0,
    directions="auto",
    seed=0,
    layer=0,
    normalise="sum",
    epsilon=1e-6,
) -> str:
    check_options(
        "linear_attention",
        feature_map=feature_map, alpha=alpha, features=features, directions=directions, seed=seed, layer=layer, normalise=normalise,
        epsilon=epsilon,
    )  # fmt: skip
    options = {"family": "linear", "feature_map": feature_map, "normalise": normalise, "epsilon": epsilon}
    if feature_map.startswith(("favor", "random-")):
        options.update(features=features or default_features(head_dim), directions=directions, seed=seed, layer=layer)
    elif feature_map == "elu":
        options["alpha"] = alpha
    return write_options(**options)


_known_options = functools.lru_cache(maxsize=256, typed=True)(_linear_options)


@_documented
def linear_attention(
    q,
    k,
    v,
    *,
    mask="full",
    prefix=None,
    window=None,
    intervals=None,
    key_lengths=None,
    segments=None,
    decay=None,
    initial_state=None,
    return_state=False,
    feature_map="elu",
    alpha=1.0,
    features=0,
    directions="auto",
    seed=0,
    layer=0,
    normalise="sum",
    epsilon=1e-6,
    layout="bnhd",
):
    """Linear attention, phi(q) (phi(k)^T v) / (phi(q) sum phi(k) + epsilon), in time that is linear in the length.

    Katharopoulos et al. 2020, "Transformers are RNNs". With a boolean mask the time is quadratic.

    Parameters
    ----------
    q, k, v : tensor [batch, length, heads, dim], [batch, keys, heads, dim], [batch, keys, heads, value dim]
        float32, bfloat16 or float64, on the CPU, the last axis contiguous. float64 runs through plain PyTorch, slow but exact, and
        without states of the maps ``favor...`` and ``random-exp`` and of segments.
    {masks}
    decay : tensor [heads], optional
        gamma, 0 < gamma <= 1: the weight of a token falls by this factor with each later one (Sun et al. 2023, equation 6). Only
        with the causal mask.
    initial_state : tensor [batch, floats], optional
        float32: what the queries continue. Only with causal and prefix masks. `linear_state` makes an empty one.
    return_state : bool
        Whether the state after the last key is a second result. `split_state` shows its S and z.
    feature_map, alpha : str, float
        A name of ``linnet.feature_maps()``; alpha belongs to elu. With ``"identity"`` q and k are features already: those of a
        map of your own, say.
    features, seed, layer : int
        Of random maps: the number of features (0: E ln E, rounded up to a multiple of 16) and what decides the directions.
    directions : {"auto", "orthogonal", "independent", "hadamard"}
        Of random maps. Hadamard directions (Yu et al. 2016, section 4) need a dim that is a power of two from 8 on, and are
        faster from 16 to 256: there ``"auto"`` takes them, and orthogonal ones elsewhere.
    normalise : {"sum", "none"}
        Whether to divide by the denominator.
    epsilon : float
        Added to the denominator.

    Returns
    -------
    out : tensor [batch, length, heads, value dim], of the type of `q`
    state : tensor [batch, floats], float32, with `return_state`

    q, k, v, decay and the states have gradients.
    """
    operation = "linear_attention"
    q, k, v = sequences(operation, q, k, v, layout)
    mask = mask_of(
        operation, q, k, mask, prefix=prefix, window=window, intervals=intervals, key_lengths=key_lengths, segments=segments
    )
    heads, head_dim, value_dim = q.shape[2], q.shape[3], v.shape[3]
    options = linear_options(head_dim, feature_map, alpha, features, directions, seed, layer, normalise, epsilon)
    if (return_state or initial_state is not None) and mask.kind not in ("causal", "prefix"):
        refuse(operation, "a causal or prefix mask with a state", f"a mask of {mask.kind}")
    if decay is not None:
        if mask.kind != "causal":
            refuse(operation, "a causal mask with a decay", f"a mask of {mask.kind}")
        decay = float_rows(operation, "decay", decay, (heads,), q)
    if initial_state is not None:
        floats = state_floats(read_options(options), heads, head_dim, value_dim)
        initial_state = float_rows(operation, "initial_state", initial_state, (q.shape[0], floats), q)
    if q.dtype == torch.float64:
        if (return_state or initial_state is not None) and (is_log_scaled(feature_map) or mask.segments is not None):
            kind = f"the feature map {feature_map}" if is_log_scaled(feature_map) else "segments"
            refuse(operation, f"float32 with a state and {kind}", "float64")
        check_by_core(q, k, v, mask, options, decay)
        k, v = _reference.without_padding(k, v, mask.key_lengths)
        out, final = _reference.linear(q, k, v, _seen(q, k, mask), read_options(options), decay, initial_state)
        out = _shown(out, layout)
        return (out, final) if return_state else out
    return _call(operation, q, k, v, mask, options, layout, decay=decay, initial=initial_state, state=return_state)


def linear_state(
    batch: int, heads: int, head_dim: int, value_dim: int | None = None, *, feature_map="elu", features=0, dtype=None
):
    """An empty state of `linear_attention` and `linear_attention_step`, [batch, floats], float32.

    A row holds S [heads, F, value dim], the sum of phi(k) v^T, then z [heads, F], the sum of phi(k); F is the number of features.
    With the maps ``favor...`` and ``random-exp`` two numbers per head follow, whose sum is a log-scale.
    """
    operation = "linear_state"
    value_dim = head_dim if value_dim is None else value_dim
    for name, value in (("batch", batch), ("heads", heads), ("head_dim", head_dim), ("value_dim", value_dim)):
        whole(operation, name, value, 0 if name == "batch" else 1)
    options = linear_options(head_dim, feature_map=feature_map, features=features)
    floats = state_floats(read_options(options), heads, head_dim, value_dim)
    try:
        state = torch.zeros(batch, floats, dtype=dtype or torch.float32)
    except RuntimeError:
        refuse(operation, "a state that fits into memory", f"one of {batch} x {floats} numbers")
    if is_log_scaled(feature_map):
        state[:, -2 * heads :: 2] = -math.inf
    return state


def split_state(state, heads: int, value_dim: int, *, feature_map="elu"):
    """The S [batch, heads, F, value dim] and z [batch, heads, F] of a state, without a copy."""
    operation = "split_state"
    check_tensor(operation, "state", state, 2)
    whole(operation, "heads", heads, 1)
    whole(operation, "value_dim", value_dim, 1)
    numbers = state.shape[1] - (2 * heads if is_log_scaled(feature_map) else 0)
    features = numbers // (heads * (value_dim + 1))
    size = heads * features * value_dim
    if numbers < 0 or size + heads * features != numbers:
        refuse(operation, f"a state of {heads} heads with values of {value_dim} numbers", f"{list(state.shape)}")
    s = state[:, :size].view(-1, heads, features, value_dim)
    return s, state[:, size : size + heads * features].view(-1, heads, features)


def linear_attention_step(
    q, k, v, state, *, decay=None, feature_map="elu", alpha=1.0, features=0, directions="auto", seed=0, layer=0,
    normalise="sum", epsilon=1e-6,
):  # fmt: skip
    """One token of each of B streams: the recurrent form of `linear_attention` with the causal mask, in constant time.

    Parameters
    ----------
    q, k, v : tensor [B, heads, dim], [B, heads, dim], [B, heads, value dim]
        float32, bfloat16 or float64; the sums are float32 beside the first two.
    state : tensor [B, floats]
        Of `linear_state` or of ``linear_attention(..., return_state=True)``. Without gradients it is changed in place, but for
        float64, where a new one is returned.
    decay and the other options
        Those of `linear_attention`.

    Returns
    -------
    out : tensor [B, heads, value dim]
    state : tensor [B, floats]
        The given tensor, or a new one where a gradient is needed and of float64.
    """
    operation = "linear_attention_step"
    q, k, v = autocast(q, k, v)
    for name, tensor in (("q", q), ("k", k), ("v", v), ("state", state)):
        check_tensor(operation, name, tensor, 2 if name == "state" else 3)
        if tensor.device != q.device:
            refuse(operation, f"{name} on {q.device}, as q", f"a tensor on {tensor.device}")
    if decay is not None and not isinstance(decay, torch.Tensor):
        refuse_type(operation, "decay as a torch.Tensor", type(decay).__name__)
    if q.shape != k.shape or v.shape[:2] != q.shape[:2]:
        refuse(operation, "q and k [B, H, E] and v [B, H, M]", f"{list(q.shape)}, {list(k.shape)} and {list(v.shape)}")
    given = (q, k, v, state, decay)
    if q.dtype == torch.float64 or (
        torch.is_grad_enabled() and any(tensor is not None and tensor.requires_grad for tensor in given)
    ):
        out, state = linear_attention(
            q[:, None], k[:, None], v[:, None], mask="causal", decay=decay, initial_state=state, return_state=True,
            feature_map=feature_map, alpha=alpha, features=features, directions=directions, seed=seed, layer=layer,
            normalise=normalise, epsilon=epsilon,
        )  # fmt: skip
        return out[:, 0], state
    batch, heads, head_dim = q.shape
    options = linear_options(head_dim, feature_map, alpha, features, directions, seed, layer, normalise, epsilon)
    floats = state_floats(read_options(options), heads, head_dim, v.shape[2])
    if state.dtype != torch.float32 or not state.is_contiguous() or tuple(state.shape) != (batch, floats):
        refuse(operation, f"a dense float32 state [{batch}, {floats}]", f"{state.dtype} {list(state.shape)}")
    if decay is not None:
        decay = float_rows(operation, "decay", decay, (heads,), q)
    q, k, v = (float_rows(operation, name, tensor, (None, None, None), q) for name, tensor in zip("qkv", given))
    out = attention_step(q, k, v, state, decay, options)
    return out.to(given[2].dtype), state


@_documented
def softmax_attention(
    q, k, v, *, mask="full", prefix=None, window=None, intervals=None, key_lengths=None, segments=None, scale=0.0, layout="bnhd"
):
    """softmax(scale q k^T) v without an N x N matrix in memory.

    Parameters
    ----------
    q, k, v : tensor [batch, length, heads, dim], [batch, keys, heads, dim], [batch, keys, heads, value dim]
        float32, bfloat16 or float64, on the CPU, the last axis contiguous. float64 runs through plain PyTorch.
    {masks}
    scale : float
        0 stands for 1/sqrt(dim).

    Returns
    -------
    tensor [batch, length, heads, value dim], of the type of `q`; q, k and v have gradients.
    """
    operation = "softmax_attention"
    check_options(operation, scale=scale)
    q, k, v = sequences(operation, q, k, v, layout)
    mask = mask_of(
        operation, q, k, mask, prefix=prefix, window=window, intervals=intervals, key_lengths=key_lengths, segments=segments
    )
    options = write_options(family="softmax", scale=scale)
    if q.dtype == torch.float64:
        return _softmax_of_float64(q, k, v, mask, scale, options, layout)
    return _call(operation, q, k, v, mask, options, layout)


@_documented
def favor_attention(
    q, k, v, *, mask="full", prefix=None, window=None, intervals=None, key_lengths=None, segments=None,
    initial_state=None, return_state=False, features=0, directions="auto", seed=0, layer=0, feature_map="favor", layout="bnhd",
):  # fmt: skip
    """Linear attention whose random features approximate softmax (Choromanski et al. 2021, "Rethinking Attention with
    Performers").

    Parameters
    ----------
    q, k, v, initial_state, return_state, features, directions, seed, layer
        Those of `linear_attention`. A seed and a layer give the same directions on every machine.
    {masks}
    feature_map : {"favor", "favor-hyperbolic", "favor-sincos", "favor-trig"}
        The first two have positive features; favor-hyperbolic, the map `Favor` of fast-transformers, has the smaller errors.
    """
    if not (isinstance(feature_map, str) and feature_map.startswith("favor")):
        refuse("favor_attention", "a feature map of favor...", repr(feature_map))
    return linear_attention(
        q, k, v, mask=mask, prefix=prefix, window=window, intervals=intervals, key_lengths=key_lengths, segments=segments,
        initial_state=initial_state, return_state=return_state,
        feature_map=feature_map, features=features, directions=directions, seed=seed, layer=layer, layout=layout,
    )  # fmt: skip


def linformer_attention(q, k, v, key_projection, value_projection=None, *, key_lengths=None, scale=0.0, layout="bnhd"):
    """softmax(scale q (P k)^T) (R v) with projections of the keys and values (Wang et al. 2020, equation 7).

    Parameters
    ----------
    q, k, v, scale, layout
        Those of `softmax_attention`.
    key_projection, value_projection : tensor [heads or 1, rank, most keys]
        P and R; R is P where it is not given. Shorter inputs use the leading columns. The rank is at most `most keys`.
    key_lengths : sequence of int or int64 tensor [batch], optional
        Batch entry b has key_lengths[b] keys.

    Returns
    -------
    tensor [batch, length, heads, value dim]; q, k, v and the projections have gradients.
    """
    operation = "linformer_attention"
    check_options(operation, scale=scale)
    q, k, v = sequences(operation, q, k, v, layout)
    mask = mask_of(operation, q, k, "full", key_lengths=key_lengths)
    value_projection = key_projection if value_projection is None else value_projection
    projections = [
        float_rows(operation, name, tensor, (None, None, None), q)
        for name, tensor in (("key_projection", key_projection), ("value_projection", value_projection))
    ]
    for tensor in projections:
        if tensor.shape[0] not in (1, q.shape[2]) or tensor.shape[2] < k.shape[1]:
            refuse(operation, f"projections [1 or {q.shape[2]}, rank, at least {k.shape[1]}]", f"{list(tensor.shape)}")
    options = write_options(family="linformer", scale=scale)
    if q.dtype == torch.float64:
        check_by_core(q, k, v, mask, options, None, *projections)
        out = _reference.linformer(q, k, v, *projections, mask.key_lengths, scale or q.shape[3] ** -0.5)
        return _shown(out, layout)
    return _call(operation, q, k, v, mask, options, layout, projections=projections)


def lsh_attention(
    q, v, *, mask="full", key_lengths=None, buckets=0, chunk=64, rounds=1, seed=0, layer=0, scale=0.0, layout="bnhd"
):
    """Softmax over keys that share a hash with the query (Kitaev et al. 2020, "Reformer"). Keys are the queries, of unit length.

    Parameters
    ----------
    q, v : tensor [batch, length, heads, dim], [batch, length, heads, value dim]
        float32 or bfloat16, on the CPU, the last axis contiguous.
    mask : {"full", "causal"}
    key_lengths : sequence of int or int64 tensor [batch], optional
    buckets, chunk, rounds : int
        Buckets of a hash (1 or even; 0 chooses), tokens per chunk, rounds of hashing.
    seed, layer : int
        What decides the random rotations.
    scale, layout
        Those of `softmax_attention`.

    Returns
    -------
    tensor [batch, length, heads, value dim]; q and v have gradients, in which the hashes are constant.
    """
    operation = "lsh_attention"
    check_options(operation, buckets=buckets, chunk=chunk, rounds=rounds, seed=seed, layer=layer, scale=scale)
    if isinstance(q, torch.Tensor) and q.dtype == torch.float64:
        refuse_type(operation, "q of float32 or bfloat16", str(q.dtype))
    q, k, v = sequences(operation, q, q, v, layout)
    if not (isinstance(mask, str) and mask in ("full", "causal")):
        refuse(operation, "a mask of 'full' or 'causal'", repr(mask) if isinstance(mask, str) else type(mask).__name__)
    options = write_options(family="lsh", scale=scale, buckets=buckets, chunk=chunk, rounds=rounds, seed=seed, layer=layer)
    return _call(operation, q, k, v, mask_of(operation, q, k, mask, key_lengths=key_lengths), options, layout)


@_documented
def local_attention(
    q, k, v, *, left=128, right=0, mask="full", prefix=None, window=None, intervals=None, key_lengths=None, segments=None,
    scale=0.0, layout="bnhd",
):  # fmt: skip
    """Softmax over the keys i - left ... i + right that the mask also shows, in time that is linear in the length.

    Parameters
    ----------
    q, k, v : tensor [batch, length, heads, dim], twice, and [batch, length, heads, value dim]
        As many keys as queries; otherwise as in `softmax_attention`.
    scale
        That of `softmax_attention`.
    left, right : int
        Keys before and after the query.
    {masks}

    Returns
    -------
    tensor [batch, length, heads, value dim]; q, k and v have gradients.
    """
    operation = "local_attention"
    check_options(operation, left=left, right=right, scale=scale)
    q, k, v = sequences(operation, q, k, v, layout)
    mask = mask_of(
        operation, q, k, mask, prefix=prefix, window=window, intervals=intervals, key_lengths=key_lengths, segments=segments
    )
    if mask.kind == "boolean":
        refuse(operation, "a mask of intervals", "a boolean one (softmax_attention takes it)")
    options = write_options(family="local", scale=scale, left=left, right=right)
    if q.dtype == torch.float64:
        near = _seen(q, k, Mask("window", left, right))
        return _softmax_of_float64(q, k, v, mask, scale, options, layout, near)
    return _call(operation, q, k, v, mask, options, layout)


def strided_attention(q, k, v, *, pattern="strided", stride=0, summary=8, key_lengths=None, scale=0.0, layout="bnhd"):
    """Causal softmax over the pattern of Child et al. 2019, section 4.3, in time N sqrt(N).

    Parameters
    ----------
    q, k, v, scale, layout
        Those of `local_attention`.
    pattern : {"strided", "fixed"}
        strided: query i sees the keys j <= i for which i - j < stride or stride divides i - j. fixed: those of its own block of
        `stride` keys and the last `summary` of every earlier block.
    stride, summary : int
        stride 0 stands for the square root of the length, rounded up to a multiple of 32.
    key_lengths : sequence of int or int64 tensor [batch], optional
    """
    operation = "strided_attention"
    check_options(operation, pattern=pattern, stride=stride, summary=summary, scale=scale)
    q, k, v = sequences(operation, q, k, v, layout)
    mask = mask_of(operation, q, k, "causal", key_lengths=key_lengths)
    options = write_options(family="strided", scale=scale, pattern=pattern, stride=stride, summary=summary)
    if q.dtype == torch.float64:
        length = q.shape[1]
        s = stride or 32 * max(1, math.ceil(math.sqrt(length) / 32))
        i = torch.arange(length, device=q.device)[:, None]
        j = i.T
        if pattern == "strided":
            shown = (i - j < s) | ((i - j) % s == 0)
        else:
            shown = (torch.div(i, s, rounding_mode="floor") == torch.div(j, s, rounding_mode="floor")) | (
                j % s >= s - min(summary, s)
            )
        return _softmax_of_float64(q, k, v, mask, scale, options, layout, shown)
    return _call(operation, q, k, v, mask, options, layout)
