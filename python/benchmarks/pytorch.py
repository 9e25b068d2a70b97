"""Linnet's operators beside PyTorch's, in one process: the figures of docs/performance.md about Python.

    python python/benchmarks/pytorch.py [PART ...] [--rounds N] [--threads N]

The parts, all without a name:

    crossing      microseconds that a call from Python costs
    linear        causal linear attention against a chunked implementation under torch.compile
    softmax       causal softmax attention against scaled_dot_product_attention
    step          a training step of the paper's MNIST model, with either attention, and Linnet's own
    alternation   torch.mm and Linnet's operators in turn against each alone

What is compared runs in turn, round after round. A figure is the median of the rounds, a ratio that of the two medians. The
process keeps the memory that was freed (pytorch_models.ALLOCATOR in bench/peers).
"""

import argparse
import functools
import pathlib
import statistics
import sys
import time

import torch
import torch.nn.functional as F

import linnet
import linnet.torch as lt

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2] / "bench" / "peers"))
import pytorch_models as models


def median_times(rounds, **calls):
    """Median seconds of every call, all of them called once in each round, after one round that does not count."""
    seconds = {name: [] for name in calls}
    for turn in range(rounds + 1):
        for name, call in calls.items():
            start = time.perf_counter()
            call()
            if turn > 0:
                seconds[name].append(time.perf_counter() - start)
    return {name: statistics.median(found) for name, found in seconds.items()}


def many(call, count):
    def repeated():
        for _ in range(count):
            call()

    return repeated


def show(name, ours, theirs=None, unit="ms"):
    scale = {"ms": 1e3, "us": 1e6}[unit]
    text = f"{name:44} {ours * scale:10.2f} {unit}"
    if theirs is not None:
        text += f"  PyTorch {theirs * scale:10.2f} {unit}  ratio {theirs / ours:6.2f}"
    print(text, flush=True)


def crossing(rounds):
    # Sixteen tokens of one head: the kernels take a few microseconds of each call.
    torch.set_num_threads(1)
    q, k, v = (torch.randn(1, 16, 1, 16) for _ in range(3))
    leaves = [x.clone().requires_grad_() for x in (q, k, v)]
    upper = torch.ones_like(v)
    state = lt.linear_state(batch=1, heads=1, head_dim=16)
    count = 500
    times = median_times(
        rounds,
        forward=many(lambda: lt.linear_attention(q, k, v, mask="causal"), count),
        gradients=many(lambda: torch.autograd.grad(lt.linear_attention(*leaves, mask="causal"), leaves, upper), count),
        step=many(lambda: lt.linear_attention_step(q[:, 0], k[:, 0], v[:, 0], state), count),
        multiply=many(lambda: torch.autograd.grad(leaves[0] * leaves[1], leaves[:2], upper), count),
    )
    show("call of linear_attention", times["forward"] / count, unit="us")
    show("call and gradients", times["gradients"] / count, unit="us")
    show("call of linear_attention_step", times["step"] / count, unit="us")
    show("for comparison, q * k and gradients", times["multiply"] / count, unit="us")


def ours_linear(q, k, v):
    return lt.linear_attention(q, k, v, mask="causal", layout="bhnd")


def linear(rounds):
    inputs = [torch.randn(1, 8, 16384, 64) for _ in range(3)]
    all_times = {}
    for chunk in (64, 128, 256):
        theirs = models.compiled_for(chunk)
        error = (theirs(*inputs) - ours_linear(*inputs)).abs().max().item()
        assert error < 1e-3, error
        times = median_times(
            rounds,
            ours=lambda: ours_linear(*inputs),
            theirs=lambda theirs=theirs: theirs(*inputs),
            ours_training=models.training_pass(ours_linear, *inputs),
            theirs_training=models.training_pass(theirs, *inputs),
        )
        for name, seconds in times.items():
            all_times.setdefault(name, []).append(seconds)
        print(f"chunks of {chunk}: " + ", ".join(f"{name} {1e3 * seconds:.1f} ms" for name, seconds in times.items()))
    # The same call each time here, and another length of chunks there.
    ours = {name: statistics.median(seconds) for name, seconds in all_times.items()}
    fastest = {name: min(seconds) for name, seconds in all_times.items()}
    show("linear, causal, 16384 x 8 x 64, forward", ours["ours"], fastest["theirs"])
    show("the same, forward and backward", ours["ours_training"], fastest["theirs_training"])


def softmax(rounds):
    for dtype in (torch.float32, torch.bfloat16):
        inputs = [torch.randn(1, 8, 4096, 64, dtype=dtype) for _ in range(3)]

        def ours(q, k, v):
            return lt.softmax_attention(q, k, v, mask="causal", layout="bhnd")

        def theirs(q, k, v):
            return F.scaled_dot_product_attention(q, k, v, is_causal=True)

        times = median_times(
            rounds,
            ours=lambda: ours(*inputs),
            theirs=lambda: theirs(*inputs),
            ours_training=models.training_pass(ours, *inputs),
            theirs_training=models.training_pass(theirs, *inputs),
        )
        name = str(dtype).removeprefix("torch.")
        show(f"softmax, causal, 4096 x 8 x 64, {name}", times["ours"], times["theirs"])
        show("the same, forward and backward", times["ours_training"], times["theirs_training"])


def step(rounds):
    tokens = torch.randint(models.LEVELS, (models.BATCH, models.LENGTH + 1))
    settings = {"model.head": "categorical", "model.length": models.LENGTH, "model.vocabulary": models.LEVELS}
    trainer = linnet.Trainer("paper-mnist", settings=settings, threads=torch.get_num_threads())
    pixels = tokens[:, :-1].numpy()
    updates = [
        models.update_of(functools.partial(models.chunked_linear, chunk=chunk), tokens) for chunk in models.PICTURE_CHUNKS
    ]
    # That of the fastest length of chunks.
    first = median_times(2, **{str(i): update for i, update in enumerate(updates)})
    times = median_times(
        rounds,
        pytorch=updates[int(min(first, key=first.get))],
        operator=models.update_of(ours_linear, tokens),
        linnet=lambda: trainer.step(pixels),
    )
    show("training step, PyTorch's attention", times["pytorch"])
    show("training step, linear_attention inside", times["operator"], times["pytorch"])
    show("training step, linnet.Trainer", times["linnet"], times["pytorch"])


def alternation(rounds):
    a, b = torch.randn(1024, 1024), torch.randn(1024, 1024)
    count = 20
    for length in (256, 4096):
        inputs = [torch.randn(1, 8, length, 64) for _ in range(3)]

        def multiply():
            torch.mm(a, b)

        def attend():
            ours_linear(*inputs)

        def both():
            multiply()
            attend()

        times = median_times(rounds, multiply=many(multiply, count), attend=many(attend, count), both=many(both, count))
        alone = times["multiply"] + times["attend"]
        print(
            f"torch.mm {1e3 * times['multiply'] / count:.2f} ms, linear_attention of {length} tokens "
            f"{1e3 * times['attend'] / count:.2f} ms; in turn {100 * (times['both'] / alone - 1):+.1f} %"
        )


PARTS = {part.__name__: part for part in (crossing, linear, softmax, step, alternation)}


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    arguments = parser.parse_args()
    for name in arguments.parts:
        if name not in PARTS:
            parser.error(f"expected a part of {', '.join(PARTS)}, got {name}")
    print(f"PyTorch {torch.__version__}, {arguments.threads} threads, {linnet.instruction_set()}")
    for name in arguments.parts or PARTS:
        torch.set_num_threads(arguments.threads)
        PARTS[name](arguments.rounds)


if __name__ == "__main__":
    models.keep_freed_memory()
    main()
