"""The masks of fast-transformers: True says that a position is kept.

`linnet_mask` gives the keyword arguments of linnet.torch's operators for an attention mask and the lengths of the keys.
"""

from __future__ import annotations

import torch

from .._arguments import refuse


class BaseMask:
    """A mask with the properties that modules read. A subclass defines `bool_matrix`."""

    @property
    def bool_matrix(self):
        """bool; True for what is kept."""
        raise NotImplementedError

    def _kept(self, name, compute):
        found = self.__dict__.get(name)
        if found is None:
            with torch.no_grad():
                found = self.__dict__[name] = compute()
        return found

    @property
    def float_matrix(self):
        """1.0 for what is kept, otherwise 0.0."""
        return self._kept("_float_matrix", lambda: self.bool_matrix.float())

    @property
    def additive_matrix(self):
        """0.0 for what is kept, otherwise minus infinity."""
        return self._kept("_additive_matrix", lambda: self.bool_matrix.float().log())

    @property
    def additive_matrix_finite(self):
        """0.0 for what is kept, otherwise -1e24."""
        return self._kept("_additive_matrix_finite", lambda: (~self.bool_matrix).float() * -1e24)

    @property
    def lengths(self):
        """The number of positions that each row keeps, where every row keeps its first ones. Throws ValueError otherwise."""

        def compute():
            matrix = self.bool_matrix
            lengths = matrix.long().sum(-1)
            first = torch.arange(matrix.shape[-1], device=matrix.device) < lengths[..., None]
            if not torch.equal(first, matrix):
                raise ValueError("[mask] expected rows that keep their first positions, got a mask with gaps")
            return lengths

        return self._kept("_lengths", compute)

    @property
    def shape(self):
        return self.bool_matrix.shape

    @property
    def all_ones(self):
        """Whether all positions are kept."""
        return self._kept("_all_ones", lambda: bool(self.bool_matrix.all()))

    @property
    def lower_triangular(self):
        """Whether row i keeps its first i + 1 positions: the causal mask."""

        def compute():
            try:
                lengths = self.lengths
            except ValueError:
                return False
            target = torch.arange(1, len(lengths) + 1, device=lengths.device)
            return lengths.dim() == 1 and bool((lengths == target).all())

        return self._kept("_lower_triangular", compute)


class FullMask(BaseMask):
    """The mask of a bool tensor, or N x M positions that are all kept: ``FullMask(mask)``, ``FullMask(N, M)``."""

    def __init__(self, mask=None, N=None, M=None, device="cpu"):
        if isinstance(mask, torch.Tensor):
            if mask.dtype != torch.bool:
                raise ValueError(f"[mask] expected a mask of bool, got {mask.dtype}")
            self._mask = mask.detach().clone()
            return
        if isinstance(mask, int) and M is None:
            N, M = mask, N
        if N is None:
            raise ValueError("[mask] expected a mask or its size N, got neither")
        self._size = (N, M or N)
        self._device = device
        self._all_ones = True

    @property
    def bool_matrix(self):
        return self._kept("_mask", lambda: torch.ones(self._size, dtype=torch.bool, device=self._device))

    @property
    def shape(self):
        return torch.Size(self._size) if "_size" in self.__dict__ else self._mask.shape


def _whole_lengths(lengths):
    """Lengths as int64. Throws ValueError for fractions; what torch.compile traces is not looked into."""
    if lengths.dtype == torch.bool:
        raise ValueError("[mask] expected whole lengths, got truth values")
    found = lengths.detach().to(torch.int64)
    if lengths.is_floating_point() and not (torch.compiler.is_compiling() or lengths.is_meta):
        if not torch.equal(found.to(lengths), lengths):
            raise ValueError("[mask] expected whole lengths, got fractions")
    return found


class LengthMask(BaseMask):
    """Row i keeps its first ``lengths[i]`` of `max_len` positions (of the greatest length without it), all of them where there are
    fewer."""

    def __init__(self, lengths, max_len=None, device=None):
        self._device = device or lengths.device
        lengths = _whole_lengths(lengths).to(self._device)
        self._max_len = int(max_len or lengths.max())
        self._lengths = lengths.clamp(max=self._max_len)

    @classmethod
    def whole(cls, batch, length, device="cpu"):
        """The mask of `batch` rows that keep all their `length` positions."""
        mask = cls.__new__(cls)
        mask._device, mask._max_len, mask._all_ones = device, length, True
        mask._lengths = torch.full((batch,), length, dtype=torch.int64, device=device)
        return mask

    @property
    def all_ones(self):
        """Whether all positions are kept. What torch.compile traces does not look into lengths, and takes them for shorter."""
        if torch.compiler.is_compiling() and "_all_ones" not in self.__dict__:
            return False
        return self._kept("_all_ones", lambda: bool((self._lengths == self._max_len).all()))

    @property
    def bool_matrix(self):
        return self._kept(
            "_bool_matrix",
            lambda: torch.arange(self._max_len, device=self._device)[None] < self._lengths[:, None],
        )

    @property
    def shape(self):
        return torch.Size((len(self._lengths), self._max_len))


class TriangularCausalMask(LengthMask):
    """N x N positions: row i keeps its first i + 1."""

    def __init__(self, N, device="cpu"):
        self._device, self._max_len, self._all_ones, self._lower_triangular = device, N, N <= 1, True
        self._lengths = torch.arange(1, N + 1, device=device)


def lengths_of(mask, batch):
    """The lengths of a mask of `batch` rows, or of one row for all of them."""
    lengths = mask.lengths
    return lengths.expand(batch) if len(lengths) == 1 else lengths


def linnet_mask(attn_mask, key_lengths, queries, keys) -> dict:
    """The arguments `mask` and `key_lengths` of linnet.torch's operators, for tensors [N, L, H, E] and [N, S, H, E]."""
    arguments = {}
    length, count = queries.shape[1], keys.shape[1]
    if attn_mask is not None:
        if tuple(attn_mask.shape) not in ((length, count), (length, length)):
            refuse("mask", f"a mask of {length} queries and {count} keys", f"{list(attn_mask.shape)}")
        if not attn_mask.all_ones:
            causal = attn_mask.lower_triangular and length == count
            arguments["mask"] = "causal" if causal else attn_mask.bool_matrix
    if key_lengths is not None:
        if key_lengths.shape[-1] > count:
            refuse("mask", f"lengths of at most {count} keys", f"a mask of {key_lengths.shape[-1]}")
        if not key_lengths.all_ones or key_lengths.shape[-1] != count:
            arguments["key_lengths"] = lengths_of(key_lengths, len(queries))
    return arguments
