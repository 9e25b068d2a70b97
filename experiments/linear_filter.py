#!/usr/bin/env python3
"""What the best linear filter does on the sounds of `linnet data instruments`: a baseline for the configuration audio.

    linnet data instruments --out band
    experiments/linear_filter.py band

Fits filters with the least squared error on the training part (the normal equations of Wiener) and prints the
signal-to-noise ratio of the test part before and after them: a causal one of 32 taps, and one of 256 taps that also sees
the 15 samples that follow, as many as the first sample in a step of 16 does.
"""

import argparse
import array
import math
import operator
import pathlib
import wave


def samples_of(path):
    with wave.open(str(path)) as sound:
        samples = array.array("h")
        samples.frombytes(sound.readframes(sound.getnframes()))
    return [sample / 32768 for sample in samples]


def dot(a, b):
    return sum(map(operator.mul, a, b))


def decibels(clean, other):
    noise = sum((x - y) ** 2 for x, y in zip(clean, other))
    return 10 * math.log10(dot(clean, clean) / noise)


def solved(matrix, right):
    """x with matrix · x = right, by Gaussian elimination; the matrix is positive definite."""
    size = len(right)
    rows = [list(row) + [value] for row, value in zip(matrix, right)]
    for i in range(size):
        for k in range(i + 1, size):
            factor = rows[k][i] / rows[i][i]
            rows[k] = [x - factor * y for x, y in zip(rows[k], rows[i])]
    x = [0.0] * size
    for i in reversed(range(size)):
        x[i] = (rows[i][size] - sum(rows[i][j] * x[j] for j in range(i + 1, size))) / rows[i][i]
    return x


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    folder = parser.parse_args().folder
    if not (folder / "noisy.wav").exists():
        parser.error(f"expected the sounds of linnet data instruments in {folder}, got no noisy.wav")
    noisy, clean, noisy_test, clean_test = (
        samples_of(folder / f"{name}.wav") for name in ("noisy", "clean", "noisy-test", "clean-test")
    )
    print(f"before: {decibels(clean_test, noisy_test):.2f} dB")
    length = len(noisy)
    for taps, ahead in ((32, 0), (256, 15)):
        own = [dot(noisy[lag:], noisy[: length - lag]) for lag in range(taps)]
        both = [
            dot(clean[lag:], noisy[: length - lag]) if lag >= 0 else dot(clean[:lag], noisy[-lag:])
            for lag in range(-ahead, taps - ahead)
        ]
        backwards = solved([[own[abs(i - j)] for j in range(taps)] for i in range(taps)], both)[::-1]
        padded = [0.0] * (taps - 1 - ahead) + noisy_test + [0.0] * ahead
        out = [dot(backwards, padded[t : t + taps]) for t in range(len(noisy_test))]
        print(f"{taps} taps, {ahead} samples ahead: {decibels(clean_test, out):.2f} dB")


if __name__ == "__main__":
    main()
