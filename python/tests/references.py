"""Attention as NumPy formulas in float64: [batch, length, heads, dim]."""

import numpy as np


def elu(x):
    return np.where(x > 0, x + 1, np.exp(np.minimum(x, 0)))


def relu(x):
    return np.maximum(x, 0)


FEATURES = {"elu": elu, "relu": relu, "squared-relu": lambda x: relu(x) ** 2, "exp": np.exp, "identity": lambda x: x}


def causal(length):
    return np.tril(np.ones((1, length, length)))


def powers(decay, length):
    """gamma_h^(i - j) [1, heads, queries, keys] where j <= i."""
    distance = np.arange(length)[:, None] - np.arange(length)[None, :]
    gamma = np.asarray(decay, np.float64)[None, :, None, None]
    return np.where(distance >= 0, gamma ** np.maximum(distance, 0), 0.0)


def linear(q, k, v, visible, decay=None, features="elu", normalise=True, epsilon=1e-6):
    """phi(q) (phi(k)' v) with the weights of masked pairs 0; visible [batch or 1, queries, keys]."""
    q, k, v = (array.astype(np.float64) for array in (q, k, v))
    weights = np.einsum("blhe,bshe->bhls", FEATURES[features](q), FEATURES[features](k)) * visible[:, None]
    if decay is not None:
        weights = weights * powers(decay, q.shape[1])
    if normalise:
        weights = weights / (weights.sum(-1, keepdims=True) + epsilon)
    return np.einsum("bhls,bshm->blhm", weights, v)


def softmax(q, k, v, visible, scale=None):
    q, k, v = (array.astype(np.float64) for array in (q, k, v))
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    scores = np.einsum("blhe,bshe->bhls", q, k) * scale
    scores = np.where(visible[:, None] > 0, scores, -np.inf)
    largest = scores.max(-1, keepdims=True)
    weights = np.exp(scores - np.where(np.isfinite(largest), largest, 0))
    total = weights.sum(-1, keepdims=True)
    return np.einsum("bhls,bshm->blhm", weights / np.where(total > 0, total, 1), v)


def differences(function, arrays, grad_out, step=1e-6):
    """Central differences of sum(function(*arrays) * grad_out) for every element of every array, in float64."""
    arrays = [np.array(array, np.float64) for array in arrays]
    gradients = []
    for array in arrays:
        gradient = np.empty_like(array)
        for index in np.ndindex(*array.shape):
            kept = array[index]
            values = []
            for moved in (kept + step, kept - step):
                array[index] = moved
                values.append(np.sum(function(*arrays) * grad_out))
            array[index] = kept
            gradient[index] = (values[0] - values[1]) / (2 * step)
        gradients.append(gradient)
    return gradients
