#!/usr/bin/env python3
"""A byte-level model of tinyshakespeare in the time of nanoGPT's recipe for a CPU (docs/results.md).

    experiments/shakespeare.py LINNET TEXT OUT [MINUTES] [KEY=VALUE ...]

LINNET is the program, TEXT the file and OUT a folder for the results. Trains experiments/shakespeare.toml for MINUTES, and
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
import common


def main():
    given = common.arguments(__doc__, "text", "out", minutes=0, held=budget.HELD)
    linnet, minutes = given.linnet, given.minutes
    common.begin(given, "text")
    here = pathlib.Path(__file__).resolve().parent
    threads = len(os.sched_getaffinity(0))
    print(f"threads: {threads}")
    print("program | updates | bytes seen | minutes | bits per byte, last tenth")
    measured = given.out / "pytorch.json"
    if not minutes and importlib.util.find_spec("torch"):
        if not measured.exists():
            measured.write_text(common.run(sys.executable, here / "shakespeare_pytorch.py", given.text, 2000, threads))
        peer = json.loads(measured.read_text())
        minutes = peer["minutes"]
        print(f"PyTorch {peer['version']} | {peer['updates']} | {peer['tokens']} | {minutes:.1f} | {peer['bits']:.3f}", flush=True)
    run = given.out / "linnet"
    budget.train(linnet, here / "shakespeare.toml", given.text, run, minutes or 3, given.settings, threads)
    found = budget.result(linnet, run)
    print(f"Linnet | {found['updates']} | {found['tokens']} | {found['minutes']:.1f} | {found['bits']:.3f}")
    print(common.run(linnet, "generate", run, "--prompt", "ROMEO:", "--length", 300, "--temperature", 0.8, "--seed", 1))


if __name__ == "__main__":
    main()
