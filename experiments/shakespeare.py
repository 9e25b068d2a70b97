#!/usr/bin/env python3
"""A byte-level model of tinyshakespeare in the time of nanoGPT's recipe for a CPU (docs/results.md).

    experiments/shakespeare.py LINNET TEXT OUT [MINUTES] [KEY=VALUE ...]

LINNET is the program, TEXT the file and OUT a folder for the runs. Trains experiments/shakespeare.toml for MINUTES (3),
and prints the loss over the whole last tenth of the text. KEY=VALUE change the configuration. Where this Python has
PyTorch, nanoGPT's recipe runs first (shakespeare_pytorch.py), and Linnet gets the time that it took instead of MINUTES.
"""
import importlib.util
import json
import pathlib
import sys

import budget


def main():
    linnet, text, out, minutes, settings = budget.arguments(__doc__, 3)
    here = pathlib.Path(__file__).resolve().parent
    print("program | updates | bytes seen | minutes | bits per byte, last tenth")
    if importlib.util.find_spec("torch"):
        peer = json.loads(budget.run(sys.executable, here / "shakespeare_pytorch.py", text))
        minutes = peer["minutes"]
        print(f"PyTorch {peer['version']} | {peer['updates']} | {peer['tokens']} | {minutes:.1f} | {peer['bits']:.3f}", flush=True)
    budget.train(linnet, here / "shakespeare.toml", text, out / "linear", minutes, settings)
    found = budget.result(linnet, out / "linear")
    print(f"Linnet | {found['updates']} | {found['tokens']} | {found['minutes']:.1f} | {found['bits']:.3f}")
    print(budget.run(linnet, "generate", out / "linear", "--prompt", "ROMEO:", "--length", 300, "--temperature", 0.8, "--seed", 1))


if __name__ == "__main__":
    main()
