"""A training loop of one's own: draws the examples itself, and halves the learning rate where the validation no longer improves.

    python examples/python/own_loop.py [UPDATES]

Pictures of synthetic digits, which Linnet makes; 600 updates take about a minute on two cores.
"""

import sys

import numpy as np

import linnet

BATCH = 32


def main():
    updates = int(sys.argv[1]) if len(sys.argv) > 1 else 600
    every = max(1, updates // 12)
    # The configuration decides the model; the loop below takes the place of its batches and its schedule.
    trainer = linnet.Trainer("digits", "digits")
    training, validation = linnet.Dataset.open("digits", trainer.model)
    validation = validation[:200]
    trainer.learning_rate = 4e-3

    rng = np.random.default_rng(0)
    best, best_bits = trainer.model, np.inf
    while trainer.steps < updates:
        report = trainer.step_examples(rng.integers(len(training), size=BATCH), data=training)
        if report["step"] % every:
            continue
        model = trainer.model
        bits = linnet.evaluate(model, validation)["bits"]
        print(
            f"update {report['step']:4}: {report['smoothed_bits']:.3f} bits a pixel in training, {bits:.3f} in validation, "
            f"learning rate {trainer.learning_rate:g}"
        )
        if bits < best_bits - 0.01:
            best, best_bits = model, bits
        else:
            trainer.learning_rate /= 2
    print(f"best: {best_bits:.3f} bits a pixel, a model of {best.parameter_count:,} parameters")


if __name__ == "__main__":
    main()
