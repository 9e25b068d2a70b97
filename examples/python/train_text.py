"""Trains a small model of text with linear attention and one with softmax, compares them, and lets the better one write.

    python examples/python/train_text.py [TEXT [UPDATES]]

Without a file the text is Linnet's own documentation. It takes less than a minute on two cores.
"""

import sys
import time
from pathlib import Path

import linnet

LENGTH = 128


def settings(family, updates):
    return {
        "model": {"layers": 2, "heads": 4, "width": 64, "feed_forward": 256, "positions": "sinusoidal"},
        "attention": {"family": family},
        "training": {
            "steps": updates,
            "batch": 8,
            "learning_rate": 4e-3,
            "warmup": 20,
            "evaluate_every": updates,
            "evaluate_examples": 32,
        },
    }


def main():
    if len(sys.argv) > 1:
        text = Path(sys.argv[1]).read_bytes()
    else:
        pages = sorted((Path(__file__).resolve().parents[2] / "docs").glob("*.md"))
        text = b"\n".join(page.read_bytes() for page in pages)
    updates = int(sys.argv[2]) if len(sys.argv) > 2 else 150
    # Every window of LENGTH bytes is an example; the last tenth of the text is for validation.
    border = len(text) * 9 // 10
    training, validation = linnet.Dataset.text(text[:border], LENGTH), linnet.Dataset.text(text[border:], LENGTH)
    print(f"{len(text)} bytes, {updates} updates")

    results = {}
    for family in ("linear", "softmax"):
        start = time.perf_counter()
        results[family] = linnet.train(settings(family, updates), training, validation=validation)
        seconds = time.perf_counter() - start
        curve = results[family].smoothed_bits
        print(
            f"{family:8} {curve[0]:.2f} bits a byte at first, {curve[-1]:.2f} at last, "
            f"{results[family].evaluation['bits']:.3f} on the validation text, {seconds:.1f} s"
        )

    best = min(results.values(), key=lambda result: result.evaluation["bits"]).model
    print(best.generate(prompt="Linear attention ", length=200, temperature=0.7, seed=1))


if __name__ == "__main__":
    main()
