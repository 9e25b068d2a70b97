#!/usr/bin/env python3
"""Losses of training with products of bf16 beside those of f32, for three seeds each (docs/results.md).

    experiments/precision.py LINNET OUT [KEY=VALUE ...]

LINNET is the program and OUT a folder for the runs and the picture of their losses. Trains configs/digits.toml, changed by
KEY=VALUE, and prints the validation loss of every run after every evaluation.
"""
import pathlib
import sys

import budget

SEEDS = (1, 2, 3)


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    linnet, out, settings = sys.argv[1], pathlib.Path(sys.argv[2]), sys.argv[3:]
    config = pathlib.Path(__file__).resolve().parent.parent / "configs" / "digits.toml"
    runs = {f"{precision}-{seed}": (precision, seed) for precision in ("f32", "bf16") for seed in SEEDS}
    losses = {}
    for name, (precision, seed) in runs.items():
        if (out / name).exists():
            budget.run(linnet, "train", "--resume", out / name)  # does nothing where it has come to its end
        else:
            budget.run(linnet, "train", config, "--out", out / name,
                       *budget.options([f"training.precision={precision}", f"training.seed={seed}", *settings]))
        losses[name] = {row["step"]: row["validation_bits"] for row in budget.rows(out / name) if "validation_bits" in row}
    print("updates | " + " | ".join(runs))
    for step in sorted(losses["f32-1"]):
        print(f"{step} | " + " | ".join(f"{losses[name][step]:.4f}" for name in runs))
    budget.run(linnet, "plot", *(out / name for name in runs), "--title", "Products of f32 and of bf16", "--out",
               out / "precision.svg")


if __name__ == "__main__":
    main()
