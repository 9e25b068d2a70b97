"""The products of fast-transformers' local attention, in plain PyTorch: column c of row i stands for the key
i - local_context // 2 + c. `linnet.torch.local_attention` computes the whole attention without these matrices."""

from __future__ import annotations

import torch

_HIDDEN = -1e24


def _windows(x, context):
    """[N, H, L, E] to [N, H, L, E, context]: the rows around each one, zeros outside."""
    left = context // 2
    return torch.nn.functional.pad(x, (0, 0, left, context - left - 1)).unfold(2, context, 1)


def local_dot_product(queries, keys, attn_mask, key_lengths, local_context):
    """[N, H, L, local_context]: Q_i . K_j plus attn_mask[i, j] for the keys j around i, and -1e24 where no such key is.

    queries and keys [N, H, L, E], attn_mask [L, L] additive, key_lengths [N].
    """
    length = keys.shape[2]
    products = torch.einsum("nhle,nhlec->nhlc", queries, _windows(keys, local_context))
    column = torch.arange(local_context, device=keys.device) - local_context // 2
    j = torch.arange(queries.shape[2], device=keys.device)[:, None] + column
    added = torch.gather(attn_mask, 1, j.clamp(0, length - 1))
    exists = (j >= 0) & (j < key_lengths[:, None, None])
    return torch.where(exists[:, None], products + added, torch.full_like(products, _HIDDEN))


def local_weighted_average(A, V):
    """out_i = sum over c of A[i, c] V_j for the keys j around i: A [N, H, L, context] and V [N, H, L, M]."""
    return torch.einsum("nhlc,nhlmc->nhlm", A, _windows(V, A.shape[3]))
