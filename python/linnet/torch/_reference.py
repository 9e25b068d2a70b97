"""The attentions in plain PyTorch, quadratic in time and memory: what float64 tensors run through, and what tests compare with.

Tensors are [batch, length, heads, dim]. Every function is differentiable by PyTorch's own rules.
"""

from __future__ import annotations

import math

import torch

from .. import _core
from ._operators import is_log_scaled


def visible_keys(batch: int, queries: int, keys: int, mask, device=None) -> torch.Tensor:
    """bool [batch, queries, keys]: whether a query sees a key. `mask` is a `_arguments.Mask`."""
    bounds, key_lengths, segments, visible = (None if x is None else x.to(device) for x in mask[3:])
    i = torch.arange(queries, device=device)[None, :, None]
    j = torch.arange(keys, device=device)[None, None, :]
    if mask.kind == "full":
        seen = torch.ones(1, queries, keys, dtype=torch.bool, device=device)
    elif mask.kind == "causal":
        seen = j <= i
    elif mask.kind == "prefix":
        seen = j <= torch.maximum(i, bounds[:, None, None] - 1)
    elif mask.kind == "window":
        seen = (i - min(mask.left, keys) <= j) & (j <= i + min(mask.right, keys))
    elif mask.kind == "intervals":
        seen = (bounds[0][None, :, None] <= j) & (j < bounds[1][None, :, None])
    else:
        seen = visible
    seen = seen.expand(batch, queries, keys)
    if key_lengths is not None:
        seen = seen & (j < key_lengths[:, None, None])
    if segments is not None:
        bounds = segments if segments.dim() == 2 else segments[None]
        bounds = torch.where(bounds < 0, torch.iinfo(torch.int64).max, bounds)
        of_query = (bounds[:, None, :] <= i.expand(1, queries, 1)).sum(-1)
        of_key = (bounds[:, None, :] <= j.transpose(1, 2)).sum(-1)
        seen = seen & (of_query[:, :, None] == of_key[:, None, :])
    return seen


def without_padding(k, v, key_lengths):
    """k and v with zeros in place of padded keys, whose numbers may be anything."""
    if key_lengths is None:
        return k, v
    lengths = key_lengths.to(k.device)[:, None]
    kept = (torch.arange(k.shape[1], device=k.device)[None] < lengths)[:, :, None, None]
    return torch.where(kept, k, 0), torch.where(kept, v, 0)


def features_of(x: torch.Tensor, options: dict) -> tuple[torch.Tensor, torch.Tensor]:
    """Features y [..., F] and log-scales s [..., 1] with phi(x) = exp(s) y."""
    name = options["feature_map"]
    zero = torch.zeros_like(x[..., :1])
    if name == "elu":
        return torch.where(x > 0, x, options["alpha"] * torch.expm1(x.clamp(max=0))) + 1, zero
    if name == "relu":
        return torch.relu(x), zero
    if name == "squared-relu":
        return torch.relu(x) ** 2, zero
    if name == "exp":
        return torch.exp(x.clamp(max=32)), zero
    if name == "identity":
        return x, zero
    return _random_features(x, options)


def _random_features(x, options):
    name, head_dim, features = options["feature_map"], x.shape[-1], options["features"]
    directions, phases = draws_of(name, head_dim, features, options["directions"], options["seed"], options["layer"])
    directions = directions.to(x)
    scaled = x * head_dim**-0.25
    products = scaled @ directions.T
    half_norm = (scaled * scaled).sum(-1, keepdim=True) / 2
    zero = torch.zeros_like(half_norm)
    root = math.sqrt(features)
    if name == "favor":
        return torch.exp(products) / root, -half_norm
    if name == "favor-hyperbolic":
        return torch.cat([torch.exp(products), torch.exp(-products)], -1) / root, -half_norm
    if name == "favor-sincos":
        return torch.cat([torch.cos(products), torch.sin(products)], -1) * math.sqrt(2 / features), half_norm
    if name == "favor-trig":
        return torch.cos(products + phases.to(x)) * math.sqrt(2 / features), half_norm
    functions = {
        "random-relu": torch.relu,
        "random-gelu": torch.nn.functional.gelu,
        "random-sigmoid": torch.sigmoid,
        "random-tanh": torch.tanh,
        "random-abs": torch.abs,
        "random-cos": torch.cos,
        "random-exp": torch.exp,
    }
    return (functions[name](products) + 0.001) / root, zero


def draws_of(name: str, head_dim: int, features: int, directions: str, seed: int, layer: int):
    """The directions [m, E] and, of favor-trig, the phases [m] of a random map of the C++ library."""
    draws = _core.random_draws(name, head_dim, features, directions, seed, layer)
    return torch.from_numpy(draws["directions"]).reshape(-1, head_dim), torch.from_numpy(draws["phases"])


def linear(q, k, v, visible, options: dict, decay=None, initial=None):
    """The linear family: the outputs, and the state after the last key, [batch, floats], of maps without log-scales."""
    y_q, s_q = features_of(q, options)
    y_k, s_k = features_of(k, options)
    phi_q, phi_k = y_q * torch.exp(s_q), y_k * torch.exp(s_k)
    weights = torch.where(visible[:, None], torch.einsum("bihf,bjhf->bhij", phi_q, phi_k), 0)
    length, keys, heads = q.shape[1], k.shape[1], q.shape[2]
    if decay is not None:
        i, j = torch.arange(length, device=q.device), torch.arange(keys, device=q.device)
        distance = (i[:, None] - j[None, :]).clamp(min=0)
        weights = weights * decay[None, :, None, None] ** distance
    numerator = torch.einsum("bhij,bjhm->bihm", weights, v)
    denominator = weights.sum(-1).transpose(1, 2)[..., None]
    kept = visible.any(1).to(phi_k)
    if initial is not None:
        features, value_dim = phi_q.shape[-1], v.shape[-1]
        size = heads * features * value_dim
        s = initial[:, :size].reshape(-1, heads, features, value_dim)
        z = initial[:, size : size + heads * features].reshape(-1, heads, features)
        factor = torch.ones(length, heads, dtype=q.dtype, device=q.device)
        if decay is not None:
            factor = decay[None, :] ** torch.arange(1, length + 1, device=q.device)[:, None]
        numerator = numerator + torch.einsum("bihf,bhfm,ih->bihm", phi_q, s, factor)
        denominator = denominator + torch.einsum("bihf,bhf,ih->bih", phi_q, z, factor)[..., None]
    if options["normalise"] == "sum":
        log_scaled = is_log_scaled(options["feature_map"])
        if not log_scaled:
            denominator = denominator + options["epsilon"]
        # As in float32: zeros where there is no denominator, and with log-scaled maps where it is negative.
        divides = denominator > 0 if log_scaled else denominator != 0
        out = torch.where(divides, numerator / torch.where(divides, denominator, 1), 0)
    else:
        out = numerator
    weight = kept[:, :, None].expand(-1, -1, heads)
    if decay is not None:
        # A key's age is the number of kept keys after it.
        after = kept.flip(1).cumsum(1).flip(1) - kept
        weight = weight * decay[None, None, :] ** after[:, :, None]
    last_s = torch.einsum("bjhf,bjhm,bjh->bhfm", phi_k, v, weight)
    last_z = torch.einsum("bjhf,bjh->bhf", phi_k, weight)
    if initial is not None:
        total = torch.ones(q.shape[0], heads, dtype=q.dtype, device=q.device)
        if decay is not None:
            total = decay[None, :] ** kept.sum(1)[:, None]
        last_s = last_s + s * total[:, :, None, None]
        last_z = last_z + z * total[:, :, None]
    return out, torch.cat([last_s.flatten(1), last_z.flatten(1)], 1)


def softmax(q, k, v, visible, scale):
    """softmax, local and strided: `visible` says which keys a query sees. A query that sees none gives zeros."""
    scores = torch.einsum("bihe,bjhe->bhij", q, k) * scale
    scores = scores.masked_fill(~visible[:, None], -math.inf)
    seen = visible.any(-1)[:, None, :, None]
    weights = torch.softmax(torch.where(seen, scores, torch.zeros_like(scores)), -1) * seen
    return torch.einsum("bhij,bjhm->bihm", weights, v)


def linformer(q, k, v, key_projection, value_projection, key_lengths, scale):
    """softmax(q (P k)^T) (R v) with projections [heads or 1, rank, keys]."""
    keys = k.shape[1]
    k, v = without_padding(k, v, key_lengths)
    heads = q.shape[2]
    p = key_projection[:, :, :keys].expand(heads, -1, -1)
    r = value_projection[:, :, :keys].expand(heads, -1, -1)
    compressed_k = torch.einsum("hrj,bjhe->bhre", p, k)
    compressed_v = torch.einsum("hrj,bjhm->bhrm", r, v)
    weights = torch.softmax(torch.einsum("bihe,bhre->bhir", q, compressed_k) * scale, -1)
    return torch.einsum("bhir,bhrm->bihm", weights, compressed_v)
