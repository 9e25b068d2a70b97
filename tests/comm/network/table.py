"""Tokens per second of training on two machines with one thread each, beside one process on the same processors."""

import collections
import json
import os
import shutil
import statistics
import subprocess
import sys

import machines
from runs import speeds, succeed

MEGABITS, DELAY = 100, 20
PICTURES = ["paper-mnist", "data.kind=digits", "data.examples=400", "training.batch=5"]

# Name, configuration with its settings, updates; what two ranks compute besides.
WORK = [
    ("digits", ["digits", "data.examples=400", "training.batch=16", "training.accumulate=2"], 13, []),
    ("paper-mnist, 2 passes", [*PICTURES, "training.accumulate=2"], 7, []),
    ("paper-mnist, 8 passes", [*PICTURES, "training.accumulate=8"], 4, []),
    ("paper-mnist, 2 passes, sequence_ranks = 2", [*PICTURES, "training.accumulate=2"], 7, ["training.sequence_ranks=2"]),
]
SLOW, LATE = "%d Mbit/s" % MEGABITS, "%d Mbit/s, %d ms" % (MEGABITS, DELAY)
NAMES = ["1 rank, 1 thread", "1 rank, 2 threads", "shared memory", "TCP loopback", SLOW, LATE]


def train(options, folder, launcher, threads, settings, updates):
    configuration, *values = settings
    out = os.path.join(folder, "run")
    shutil.rmtree(out, ignore_errors=True)
    succeed([*launcher, options.linnet, "train", configuration, "--out", out, "--threads", str(threads), "--set", *values,
             "training.steps=%d" % updates, "training.log_every=1", "training.evaluate_examples=2", "training.sample_every=0"], 600)
    return speeds(out)


def predicted(options, settings, rate, latency, sequence_ranks):
    configuration, *values = settings
    command = [options.linnet, "inspect", configuration, "--set", *values, "--ranks", "2", "--bandwidth", str(MEGABITS / 1000),
               "--latency", str(latency), "--rate", str(rate), "--sequence-ranks", str(sequence_ranks), "--json"]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)[0]["tokens_per_second"]


def measure(options, folder):
    """Rounds of all variants one after another, so that other work on this machine slows none alone."""
    measured = collections.defaultdict(list)
    two = [options.mpirun, "--bind-to", "none", "-n", "2"]
    loopback = [*two, "--mca", "btl", "tcp,self", "--mca", "btl_tcp_if_include", "lo"]
    for _ in range(options.rounds):
        for name, settings, updates, more in WORK:
            def add(variant, launcher, threads, settings):
                found = train(options, folder, launcher, threads, settings, updates)
                measured[name, variant] += found
                print("%s: %s: %s" % (name, variant, " ".join("%.0f" % one for one in found)), file=sys.stderr, flush=True)

            add(NAMES[0], [], 1, settings)
            add(NAMES[1], [], 2, settings)
            add(NAMES[2], two, 1, settings + more)
            add(NAMES[3], loopback, 1, settings + more)
            for variant, delay in ((SLOW, None), (LATE, DELAY)):
                with machines.Network(2, folder + "/network", options.relay, MEGABITS, delay) as network:
                    add(variant, network.mpirun(options.mpirun), 1, settings + more)
    print_table(options, measured)


def print_table(options, measured):
    """Medians of the updates, and in brackets the best one, which other work has disturbed least."""
    print("| tokens/s | %s | computed for %s | computed for %s |" % (" | ".join(NAMES), SLOW, LATE))
    print("|---" * (len(NAMES) + 3) + "|")
    for name, settings, _, more in WORK:
        cells = ["{:,.0f} ({:,.0f})".format(statistics.median(measured[name, variant]), max(measured[name, variant]))
                 for variant in NAMES]
        rate = statistics.median(measured[name, NAMES[0]])
        cells += ["{:,.0f}".format(predicted(options, settings, rate, latency, 2 if more else 1)) for latency in (100, 1000 * DELAY)]
        print("| %s | %s |" % (name, " | ".join(cells)))
