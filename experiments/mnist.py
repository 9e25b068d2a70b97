#!/usr/bin/env python3
"""MNIST pixel by pixel for an equal budget of time: linear attention with learned decay, and softmax (docs/results.md).

    experiments/mnist.py LINNET MNIST OUT [MINUTES] [KEY=VALUE ...]

LINNET is the program and the folder MNIST holds the four files of MNIST. Every attention trains experiments/mnist.toml for
MINUTES (45) with bf16 products, in OUT. Then the script prints a table of the loss over all test images, draws 64
pictures and the lower halves of the first test images with each model, and the losses against time. Started again, it
goes on where it was interrupted. KEY=VALUE change the configuration of all runs.
"""
import gzip
import json
import pathlib
import struct

import budget
import common

ATTENTION = {"linear-decay": ["attention.decay=learned"], "softmax": ["attention.family=softmax"]}
PICTURES = 64


def first_pictures(mnist, file):
    """Writes the first test images into an IDX file."""
    compressed = mnist / "t10k-images-idx3-ubyte.gz"
    source = gzip.open(compressed) if compressed.exists() else open(mnist / "t10k-images-idx3-ubyte", "rb")
    with source:
        magic, count, rows, columns = struct.unpack(">4I", source.read(16))
        count = min(count, PICTURES)
        pixels = source.read(count * rows * columns)
    file.write_bytes(struct.pack(">4I", magic, count, rows, columns) + pixels)


def main():
    given = common.arguments(__doc__, "mnist", "out", minutes=45, held=budget.HELD)
    linnet, out, minutes = given.linnet, given.out, given.minutes
    common.begin(given, "mnist")
    config = pathlib.Path(__file__).resolve().parent / "mnist.toml"
    for name, changes in ATTENTION.items():
        budget.train(linnet, config, given.mnist, out / name, minutes, [*changes, *given.settings])
    first_pictures(given.mnist, out / "first-idx3-ubyte")
    print("attention | updates | images seen | minutes | bits per dimension, all test images")
    for name in ATTENTION:
        found = budget.result(linnet, out / name)
        images = found["tokens"] // json.loads((out / name / "config.json").read_text())["model"]["length"]
        print(f"{name} | {found['updates']} | {images} | {found['minutes']:.1f} | {found['bits']:.4f}", flush=True)
        common.run(linnet, "generate", out / name, "--count", PICTURES, "--seed", 1, "--out", out / f"{name}-samples.png")
        common.run(linnet, "generate", out / name, "--complete", out / "first-idx3-ubyte", "--seed", 1, "--out",
                   out / f"{name}-halves.png")
    common.run(linnet, "plot", *(out / name for name in ATTENTION), "--x", "seconds", "--title",
               f"MNIST, {minutes:g} minutes each", "--out", out / "mnist.svg")


if __name__ == "__main__":
    main()
