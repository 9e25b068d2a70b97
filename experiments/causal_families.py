#!/usr/bin/env python3
"""Every causal family on the copy task and on small MNIST pictures (docs/results.md).

    experiments/causal_families.py LINNET MNIST OUT [KEY=VALUE ...]

LINNET is the program and MNIST the folder with the four files of MNIST. Trains configs/copy.toml and configs/mnist-small.toml,
changed by KEY=VALUE, with each family into OUT, prints the loss over all examples for validation, and draws the losses.
"""
import json

import common

FAMILIES = {
    "linear": [],
    "softmax": ["attention.family=softmax"],
    "favor": ["attention.feature_map=favor", "attention.features=64", "attention.directions=orthogonal"],
    "local": ["attention.family=local", "attention.window=32"],
    "strided": ["attention.family=strided", "attention.stride=16"],
    "lsh": ["attention.family=lsh", "attention.chunk=16", "attention.rounds=2"],
}


def main():
    given = common.arguments(__doc__, "mnist", "out")
    common.begin(given, "mnist")
    print("configuration | family | bits per token | examples")
    tasks = {"copy": ("copy", "The copy task"), "mnist-small": (given.mnist, "MNIST, 14 × 14 pixels")}
    for config, (data, title) in tasks.items():
        for name, changes in FAMILIES.items():
            folder = given.out / config / name
            common.train(given.linnet, folder, config, "--data", data, *common.options([*changes, *given.settings]))
            found = json.loads(common.run(given.linnet, "evaluate", folder, "--json"))
            print(f"{config} | {name} | {found['bits_per_token']:.4f} | {found['examples']}", flush=True)
        common.run(given.linnet, "plot", *(given.out / config / name for name in FAMILIES), "--title", title, "--out",
                   given.out / f"{config}.svg")


if __name__ == "__main__":
    main()
