#!/usr/bin/env python3
"""Losses of training with products of bf16 beside those of f32, for three seeds each (docs/results.md).

    experiments/precision.py LINNET OUT [KEY=VALUE ...]

LINNET is the program and OUT a folder for the runs and the picture of their losses. Trains configs/digits.toml, changed by
KEY=VALUE, and prints the validation loss of every run after every evaluation.
"""
import common

SEEDS = (1, 2, 3)


def main():
    given = common.arguments(__doc__, "out", held=("training.precision", "training.seed"))
    common.begin(given)
    runs = {f"{precision}-{seed}": (precision, seed) for precision in ("f32", "bf16") for seed in SEEDS}
    losses = {}
    for name, (precision, seed) in runs.items():
        common.train(given.linnet, given.out / name, "digits",
                     *common.options([f"training.precision={precision}", f"training.seed={seed}", *given.settings]))
        losses[name] = {row["step"]: row["validation_bits"] for row in common.rows(given.out / name) if "validation_bits" in row}
    print("updates | " + " | ".join(runs))
    for step in sorted(losses["f32-1"]):
        print(f"{step} | " + " | ".join(f"{losses[name][step]:.4f}" for name in runs))
    common.run(given.linnet, "plot", *(given.out / name for name in runs), "--title", "Products of f32 and of bf16", "--out",
               given.out / "precision.svg")


if __name__ == "__main__":
    main()
