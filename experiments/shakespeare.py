#!/usr/bin/env python3
"""A byte-level model of tinyshakespeare in the time of nanoGPT's recipe for a CPU (docs/results.md).

    experiments/shakespeare.py LINNET TEXT OUT [MINUTES] [KEY=VALUE ...]

LINNET is the program, TEXT the file and OUT a folder for the run. Trains experiments/shakespeare.toml for MINUTES, and
prints the loss over the whole last tenth of the text. KEY=VALUE change the configuration. Without MINUTES, nanoGPT's recipe
in PyTorch (shakespeare_pytorch.py) runs first where this Python has it, and Linnet gets the time that it took; three
minutes otherwise. Both run on as many threads as there are processors for this process, which the script prints.
"""
import importlib.util
import json
import os
import pathlib
import sys

import budget


def main():
    linnet, text, out, minutes, settings = budget.arguments(__doc__, None)
    here = pathlib.Path(__file__).resolve().parent
    threads = len(os.sched_getaffinity(0))
    print(f"threads: {threads}")
    print("program | updates | bytes seen | minutes | bits per byte, last tenth")
    if minutes is None and importlib.util.find_spec("torch"):
        peer = json.loads(budget.run(sys.executable, here / "shakespeare_pytorch.py", text, 2000, threads))
        minutes = peer["minutes"]
        print(f"PyTorch {peer['version']} | {peer['updates']} | {peer['tokens']} | {minutes:.1f} | {peer['bits']:.3f}", flush=True)
    budget.train(linnet, here / "shakespeare.toml", text, out, minutes or 3, settings, threads)
    found = budget.result(linnet, out)
    print(f"Linnet | {found['updates']} | {found['tokens']} | {found['minutes']:.1f} | {found['bits']:.3f}")
    print(budget.run(linnet, "generate", out, "--prompt", "ROMEO:", "--length", 300, "--temperature", 0.8, "--seed", 1))


if __name__ == "__main__":
    main()
