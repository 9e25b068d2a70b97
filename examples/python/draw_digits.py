"""Draws digits with the shipped model, pixel by pixel, and writes them as one picture.

    python examples/python/draw_digits.py [OUT.png]
"""

import struct
import sys
import time
import zlib
from pathlib import Path

import numpy as np

import linnet


def grid_of(pictures, columns):
    """Pictures [count, height, width] as one, row by row."""
    count, height, width = pictures.shape
    rows = -(-count // columns)
    cells = np.zeros((rows * columns, height, width), np.uint8)
    cells[:count] = pictures
    return cells.reshape(rows, columns, height, width).swapaxes(1, 2).reshape(rows * height, columns * width)


def write_png(path, pixels):
    """A grey picture [height, width], uint8."""

    def chunk(name, data):
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    height, width = pixels.shape
    lines = b"".join(b"\0" + row.tobytes() for row in pixels)
    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    path.write_bytes(
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(lines)) + chunk(b"IEND", b"")
    )


def main():
    out = Path(sys.argv[1] if len(sys.argv) > 1 else "digits.png")
    model = linnet.load(Path(__file__).resolve().parents[2] / "models" / "digits")
    print(model)

    start = time.perf_counter()
    digits = model.generate(40, label=range(10), seed=1)  # uint8 [40, 16, 16], four of each class
    seconds = time.perf_counter() - start
    print(f"{len(digits)} pictures in {seconds:.2f} s")

    # A session goes token by token: here it tells how sure the model is of each pixel that it draws.
    session = model.session()
    session.begin(label=8, seed=3)
    surprise = 0.0
    for _ in range(model.length):
        probabilities = session.probabilities()
        surprise -= np.log2(probabilities[session.step()[0]])
    print(f"one more 8: {surprise / model.length:.3f} bits a pixel, state of {session.state_bytes()} bytes")

    large = digits.repeat(3, axis=1).repeat(3, axis=2)
    write_png(out, grid_of(large, 10))
    print(f"written to {out}")


if __name__ == "__main__":
    main()
