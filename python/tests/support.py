import struct
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


def sentencepiece_model(pieces, blank_before=False):
    """A SentencePiece model as its format has it (sentencepiece_model.proto): token 0 is the unknown one, 1 to 256 are the bytes, and
    the pieces follow. With `blank_before` a text is encoded as if it began with a blank."""

    def block(tag, contents):
        size, rest = b"", len(contents)
        while rest >= 0x80:
            size, rest = size + bytes([rest & 0x7F | 0x80]), rest >> 7
        return bytes([tag]) + size + bytes([rest]) + contents

    def piece(text, kind):
        return block(0x0A, block(0x0A, text.encode()) + struct.pack("<Bf", 0x15, -1) + bytes([0x18, kind]))

    model = piece("<unk>", 2) + b"".join(piece(f"<0x{byte:02X}>", 6) for byte in range(256))
    model += b"".join(piece(text.replace(" ", "\u2581"), 1) for text in pieces)
    return model + block(0x12, bytes([0x98, 0x02, 1])) + block(0x1A, bytes([0x18, blank_before, 0x20, 0]))


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
