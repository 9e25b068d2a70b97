#!/usr/bin/env python3
"""Encoders of proteins that differ in their attention alone (docs/results.md).

    experiments/proteins.py LINNET FASTA OUT [KEY=VALUE ...]

LINNET is the program and FASTA the file of the sequences. Trains configs/proteins.toml, changed by KEY=VALUE, for 400 updates
with each attention into OUT, prints perplexity and accuracy over the hidden residues of all pieces for validation, and draws
the losses.
"""
import json

import common

ATTENTION = {
    "softmax": ["attention.family=softmax"],
    "favor": ["attention.feature_map=favor", "attention.directions=orthogonal"],
    "elu": ["attention.feature_map=elu"],
    **{f"linformer-{rank}": ["attention.family=linformer", f"attention.rank={rank}"] for rank in (16, 64, 256)},
    "local": ["attention.family=local", "attention.window=32"],
    "lsh": ["attention.family=lsh", "attention.rounds=2"],
}


def main():
    given = common.arguments(__doc__, "fasta", "out")
    common.begin(given, "fasta")
    print("attention | perplexity | accuracy, % | hidden residues")
    for name, changes in ATTENTION.items():
        folder = given.out / name
        settings = ["training.steps=400", "training.warmup=40", *changes, *given.settings]
        common.train(given.linnet, folder, "proteins", "--data", given.fasta, *common.options(settings))
        found = json.loads(common.run(given.linnet, "evaluate", folder, "--json"))
        print(f"{name} | {found['perplexity']:.2f} | {100 * found['accuracy']:.1f} | {found['tokens']}", flush=True)
    common.run(given.linnet, "plot", *(given.out / name for name in ATTENTION), "--out", given.out / "proteins.svg")


if __name__ == "__main__":
    main()
