from pathlib import Path

import numpy as np

import linnet

REPOSITORY = Path(__file__).resolve().parents[2]
TINY = {
    "model": {"layers": 2, "heads": 2, "width": 16, "feed_forward": 32, "length": 24, "vocabulary": 11},
    "training": {"batch": 8, "learning_rate": 1e-2, "seed": 3},
}


def tiny(**settings):
    """A small configuration; the keys of settings have __ in place of dots."""
    return linnet.configuration(TINY, {key.replace("__", "."): value for key, value in settings.items()})


def uniform(seed, *shape):
    """float32 numbers in (-1, 1)."""
    return np.random.default_rng(seed).uniform(-1, 1, shape).astype(np.float32)


def counting(examples, length, vocabulary):
    """Sequences that count modulo the vocabulary from any start, which a small model learns in a few updates."""
    starts = np.random.default_rng(5).integers(vocabulary, size=(examples, 1))
    return ((starts + np.arange(length)) % vocabulary).astype(np.int32)


def relative(found, expected):
    """Norm-wise relative error."""
    found, expected = np.asarray(found, np.float64), np.asarray(expected, np.float64)
    return np.linalg.norm(found - expected) / max(np.linalg.norm(expected), 1e-30)
