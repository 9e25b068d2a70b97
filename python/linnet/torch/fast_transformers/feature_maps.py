"""The feature maps of fast-transformers, in plain PyTorch.

A factory is called with the query dimensions and gives a `FeatureMap`. `elu_feature_map` runs inside Linnet's operator; the
features of the others are computed here, and the operator takes them as they are.
"""

from __future__ import annotations

import math
import warnings

import torch


class FeatureMap(torch.nn.Module):
    """phi, applied to the last axis. A map that treats queries and keys alike defines `forward` alone."""

    def __init__(self, query_dims):
        super().__init__()
        self.query_dims = query_dims

    def new_feature_map(self, device):
        """Draws a random map anew; called before every use in training."""
        raise NotImplementedError

    def forward_queries(self, x):
        return self(x)

    def forward_keys(self, x):
        return self(x)

    def forward(self, x):
        raise NotImplementedError

    @classmethod
    def factory(cls, *args, **kwargs):
        """A function of the query dimensions that makes such a map."""

        def make(query_dims):
            return cls(query_dims, *args, **kwargs)

        return make


class ActivationFunctionFeatureMap(FeatureMap):
    """A function of each number."""

    def __init__(self, query_dims, activation_function):
        super().__init__(query_dims)
        self.activation_function = activation_function

    def new_feature_map(self, device):
        return

    def forward(self, x):
        return self.activation_function(x)


def _elu(x):
    return torch.nn.functional.elu(x) + 1


elu_feature_map = ActivationFunctionFeatureMap.factory(_elu)


def is_elu(feature_map) -> bool:
    """Whether Linnet's operator has the map itself."""
    return isinstance(feature_map, ActivationFunctionFeatureMap) and feature_map.activation_function is _elu


def orthogonal_random_matrix_(w):
    """Fills w [rows, columns] with columns that are orthogonal in groups of `rows` and as long as normal vectors. As in
    fast-transformers their signs are those of `torch.linalg.qr`, not alike: features that are not symmetric in w, such as
    relu(w.x) of `GeneralizedRandomFeatures`, favour some directions of x."""
    rows, columns = w.shape
    for first in range(0, columns, rows):
        count = min(rows, columns - first)
        block = torch.randn(rows, rows, device=w.device)
        basis, _ = torch.linalg.qr(block)
        w[:, first : first + count] = basis[:, :count] * block.norm(dim=1)[:count]


class RandomFourierFeatures(FeatureMap):
    """[cos(w.x), sin(w.x)] sqrt(2 / n_dims), whose products have the mean exp(-|x - y|^2 t / 2), t = `softmax_temp` (Rahimi and
    Recht 2007). The buffer `omega` [query_dimensions, n_dims / 2] is drawn every `redraw` calls, with `deterministic_eval` in
    training alone."""

    def __init__(self, query_dimensions, n_dims=None, softmax_temp=None, orthogonal=False, redraw=1, deterministic_eval=False):
        super().__init__(query_dimensions)
        self.n_dims = n_dims or query_dimensions
        self.query_dimensions = query_dimensions
        self.orthogonal = orthogonal
        self.softmax_temp = 1 / math.sqrt(query_dimensions) if softmax_temp is None else softmax_temp
        self.redraw = redraw
        self.deterministic_eval = deterministic_eval
        self.register_buffer("omega", torch.zeros(query_dimensions, self.n_dims // 2))
        self._calls = -1

    def new_feature_map(self, device):
        if self.deterministic_eval and not self.training:
            return
        self._calls += 1
        if self._calls % self.redraw != 0:
            return
        omega = torch.zeros_like(self.omega, device=device)
        if self.orthogonal:
            orthogonal_random_matrix_(omega)
        else:
            omega.normal_()
        self.register_buffer("omega", omega)

    def forward(self, x):
        products = (x * math.sqrt(self.softmax_temp)) @ self.omega
        return torch.cat([torch.cos(products), torch.sin(products)], -1) * math.sqrt(2 / self.n_dims)


class SmoothedRandomFourierFeatures(RandomFourierFeatures):
    """The same with one more feature, the constant `smoothing`, against denominators near 0."""

    def __init__(
        self,
        query_dimensions,
        n_dims=None,
        softmax_temp=None,
        orthogonal=False,
        smoothing=1.0,
        redraw=1,
        deterministic_eval=False,
    ):
        super().__init__(
            query_dimensions,
            n_dims=(query_dimensions if n_dims is None else n_dims) - 1,
            softmax_temp=softmax_temp,
            orthogonal=orthogonal,
            redraw=redraw,
            deterministic_eval=deterministic_eval,
        )
        self.smoothing = smoothing

    def forward(self, x):
        features = super().forward(x)
        return torch.cat([features, torch.full_like(features[..., :1], self.smoothing)], -1)


class Favor(RandomFourierFeatures):
    """[exp(w.x), exp(-w.x)] exp(-|x|^2 / 2) / sqrt(n_dims): positive features whose products have the mean exp(x.y), x and y
    first multiplied by sqrt(`softmax_temp`) (Choromanski et al. 2021, lemma 1). With `stabilize` the greatest |x|^2 of a sequence
    is subtracted from the exponents."""

    def __init__(
        self,
        query_dimensions,
        n_dims=None,
        softmax_temp=None,
        orthogonal=True,
        stabilize=False,
        redraw=1,
        deterministic_eval=False,
    ):
        super().__init__(
            query_dimensions,
            n_dims=n_dims,
            softmax_temp=softmax_temp,
            orthogonal=orthogonal,
            redraw=redraw,
            deterministic_eval=deterministic_eval,
        )
        self.stabilize = stabilize

    def forward(self, x):
        x = x * math.sqrt(self.softmax_temp)
        squares = (x * x).sum(-1, keepdim=True)
        products = x @ self.omega
        offset = squares / 2 + math.log(self.n_dims) / 2
        if self.stabilize:
            if x.dim() != 4 or x.shape[1] < x.shape[2]:
                warnings.warn(
                    f"[favor] expected x [batch, length, heads, dim] with more tokens than heads, got {list(x.shape)}",
                    stacklevel=2,
                )
            offset = offset + squares.amax(1, keepdim=True)
        return torch.exp(torch.cat([products - offset, -products - offset], -1))


class GeneralizedRandomFeatures(RandomFourierFeatures):
    """`kernel_fn` of w.x, `n_dims` features (the generalised attention of Choromanski et al. 2021)."""

    def __init__(
        self,
        query_dimensions,
        n_dims=None,
        softmax_temp=1.0,
        orthogonal=True,
        kernel_fn=torch.relu,
        redraw=1,
        deterministic_eval=False,
    ):
        super().__init__(
            query_dimensions,
            n_dims=2 * (query_dimensions if n_dims is None else n_dims),
            softmax_temp=softmax_temp,
            orthogonal=orthogonal,
            redraw=redraw,
            deterministic_eval=deterministic_eval,
        )
        self.kernel_fn = kernel_fn

    def forward(self, x):
        return self.kernel_fn((x * math.sqrt(self.softmax_temp)) @ self.omega)
