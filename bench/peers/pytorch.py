#!/usr/bin/env python3
"""PyTorch beside the linnet program on the same shapes, in one run (docs/performance.md).

    bench/peers/pytorch.py LINNET [PART ...] [--rounds N] [--threads N]

Needs PyTorch; bench/peers/pytorch.sh runs it in a virtual environment of its own. The parts, all without a name:

    attention   causal softmax (scaled_dot_product_attention) and linear attention (in chunks, compiled), forward and training
    training    updates of the paper's MNIST model, compiled with its loss, with f32 and bf16 products
    generation  compiled steps of the same model: linear attention by its state, softmax with a cache of keys and values

PyTorch and Linnet are measured in turn, round after round. A figure is the median of the rounds; a ratio is that of two
medians. The output head of the model is categorical in both. Of several lengths of chunks the one that is fastest for PyTorch
counts, and PyTorch keeps the memory that it has freed (pytorch_models.ALLOCATOR).
"""
import argparse
import functools
import json
import statistics
import subprocess
import time

import torch

import pytorch_models as models

HEADING = ["what", "Linnet", "PyTorch", "ratio"]


class Linnet:
    def __init__(self, program, threads):
        self.program, self.threads = program, threads

    def bench(self, *arguments):
        """The rows of one `linnet bench`."""
        command = [self.program, "bench", *map(str, arguments), "--threads", str(self.threads), "--json"]
        return json.loads(
            subprocess.run(command, check=True, capture_output=True, text=True, env=models.own_environment()).stdout
        )

    def version(self):
        return subprocess.run([self.program, "--version"], check=True, capture_output=True, text=True).stdout.strip()


def seconds_of(call, seconds=2.0):
    """The median over calls that take so long together."""
    times, begin = [], time.perf_counter()
    while len(times) < 3 or time.perf_counter() - begin < seconds:
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def compare(rounds, name, unit, ours, theirs, larger_is_better):
    """Prints a row. `ours` and `theirs` measure once."""
    theirs()  # compiles
    found = [(ours(), theirs()) for _ in range(rounds)]
    here, there = (statistics.median(column) for column in zip(*found))
    ratio = here / there if larger_is_better else there / here
    print(f"{name} | {here:.4g} {unit} | {there:.4g} {unit} | {ratio:.2f}", flush=True)


def attention(linnet, rounds):
    for family, length, peers in (
        ("softmax", 4096, [models.softmax]),
        ("linear", 16384, [models.compiled_for(chunk) for chunk in (64, 128, 256)]),
    ):
        inputs = [torch.randn(1, 8, length, 64) for _ in range(3)]
        for kind in ("forward", "training"):
            calls = [(lambda peer=peer: peer(*inputs)) if kind == "forward" else models.training_pass(peer, *inputs) for peer in peers]
            compare(
                rounds,
                f"{family}, causal, {length} tokens of 8 heads of 64, {kind}",
                "ms",
                lambda: linnet.bench("attention", "--family", family, "--mask", "causal", "--length", length, "--pass", kind,
                                     "--seconds", 2)[0]["time_ms"]["median"],
                lambda: 1e3 * min(map(seconds_of, calls)),
                larger_is_better=False,
            )


def training(linnet, rounds):
    tokens = torch.randint(models.LEVELS, (models.BATCH, models.LENGTH + 1))
    per_update = models.BATCH * models.LENGTH
    in_chunks = [functools.partial(models.chunked_linear, chunk=chunk) for chunk in models.PICTURE_CHUNKS]
    for family, attends in (("linear", in_chunks), ("softmax", [models.softmax])):
        for precision in ("f32", "bf16"):
            updates = [models.update_of(attend, tokens, autocast=precision == "bf16") for attend in attends]
            for update in updates:
                update()  # compiles
            update = min(updates, key=seconds_of)
            compare(
                rounds,
                f"training, {family} attention, products of {precision}",
                "tokens/s",
                lambda: linnet.bench("train", "--config", "paper-mnist", "--family", family, "--precision", precision,
                                     "--set", "model.head=categorical", "--seconds", 5)[0]["tokens_per_second"],
                lambda: per_update / seconds_of(update, 5),
                larger_is_better=True,
            )


def generation(linnet, rounds):
    for family, memory in (("linear", models.LinearState), ("softmax", models.SoftmaxCache)):
        for precision in ("f32", "bf16"):
            for streams in (1, 8, 64):
                torch.manual_seed(0)
                drawing = models.Drawing(models.Pixels(None), memory, streams)
                if precision == "bf16":
                    drawing = drawing.bfloat16()
                # What the state sees does not depend on the position; the cache is compiled for any.
                step = torch.compile(drawing, dynamic=None if family == "softmax" else False)
                tokens = torch.zeros(streams, dtype=torch.long)
                # Steps over the whole length, as the cost of softmax grows with the position.
                positions = range(24, models.LENGTH, 49)

                def call_of(position):
                    place, seen = torch.tensor(position), position + 1 if family == "softmax" else 0
                    return lambda: step(tokens, place, seen)

                def picture_rate():
                    with torch.inference_mode():
                        return streams / (models.LENGTH * statistics.fmean(
                            seconds_of(call_of(position), 0.1) for position in positions))

                compare(
                    rounds,
                    f"generation, {family} attention, {streams} stream{'s' if streams > 1 else ''}, {precision}",
                    "images/s",
                    lambda: linnet.bench("generate", "--config", "paper-mnist", "--family", family, "--streams", streams,
                                         "--weights", precision, "--set", "model.head=categorical", "--seconds",
                                         2)[0]["images_per_second"],
                    picture_rate,
                    larger_is_better=True,
                )


PARTS = {part.__name__: part for part in (attention, training, generation)}


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("linnet", metavar="LINNET", help="the program")
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    arguments = parser.parse_args()
    for name in arguments.parts:
        if name not in PARTS:
            parser.error(f"expected a part of {', '.join(PARTS)}, got {name}")
    torch.set_num_threads(arguments.threads)
    linnet = Linnet(arguments.linnet, arguments.threads)
    print(f"{linnet.version()}, PyTorch {torch.__version__}, {arguments.threads} threads, {time.strftime('%Y-%m-%d')}")
    print(" | ".join(HEADING))
    for name in arguments.parts or PARTS:
        PARTS[name](linnet, arguments.rounds)


if __name__ == "__main__":
    models.keep_freed_memory()
    main()
