#!/usr/bin/env python3
"""Anomalies of two labelled streams of the Numenta Anomaly Benchmark (docs/results.md, "Anomalies").

    experiments/anomalies.py LINNET DATA OUT [KEY=VALUE ...]

LINNET is the program. DATA holds the streams machine_temperature_system_failure.csv and nyc_taxi.csv (the benchmark's
data/realKnownCause) and their labels as anomaly_windows.json (its labels/combined_windows.json). For each stream, attention
and three seeds the script trains configs/anomalies.toml, changed by KEY=VALUE, into OUT, scores the whole stream, and prints
a row: labelled windows with an anomaly in them, anomalies outside of all windows, the share of the steps outside that lie in
anomalies, steps of the longest anomaly, nats per step, steps per second, bytes of state, and the processor time of training,
where this call has trained all of it. The training part gives the threshold; the labels are read only to count.
"""
import csv
import json
import pathlib
import resource
import sys

import common

SEEDS = (1, 2, 3)
STREAMS = ("machine_temperature_system_failure", "nyc_taxi")
ATTENTION = {
    "linear, decay": [],
    "linear, no decay": ["attention.decay=none"],
    "softmax, 128 keys": ["attention.family=local", "attention.decay=none"],
}


def labelled_windows(data):
    """First and last times of the windows of every stream, by the name of its file; NAB's own keys have a folder before it."""
    labels = json.loads((data / "anomaly_windows.json").read_text())
    return {pathlib.PurePosixPath(key).name: [(begin[:19], end[:19]) for begin, end in windows]
            for key, windows in labels.items()}


def processor_seconds():
    """What the commands so far took of all processors."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def meet(span, window):
    return span[0] <= window[1] and window[0] <= span[1]


def counts(anomalies, windows, times):
    """Windows found, false alarms, the share of the steps outside of windows that are alarmed, and the longest anomaly."""
    spans = [(times[row["first"]], times[row["last"]]) for row in anomalies]
    outside = [not any(begin <= time <= end for begin, end in windows) for time in times]
    alarmed = sum(sum(outside[row["first"]:row["last"] + 1]) for row in anomalies)
    return {
        "found": sum(any(meet(span, window) for span in spans) for window in windows),
        "false": sum(not any(meet(span, window) for window in windows) for span in spans),
        "share": alarmed / max(1, sum(outside)),
        "longest": max((row["last"] - row["first"] + 1 for row in anomalies), default=0),
    }


def main():
    given = common.arguments(__doc__, "data", "out", held=("training.seed",))
    for file in ("anomaly_windows.json", *(f"{stream}.csv" for stream in STREAMS)):
        if not (given.data / file).exists():
            sys.exit(f"expected {file} of the benchmark in {given.data}, got none")
    common.begin(given, "data")
    labels = labelled_windows(given.data)
    print("stream | attention | seed | windows found | false alarms | alarmed outside, % | longest | nats per step | steps/s | "
          "bytes of state | training, s")
    for stream in STREAMS:
        file = given.data / f"{stream}.csv"
        with open(file, newline="") as source:
            times = [row[0] for row in list(csv.reader(source))[1:]]
        windows = labels[file.name]
        for name, changes in ATTENTION.items():
            for seed in SEEDS:
                folder = given.out / f"{stream}-{name.replace(', ', '-').replace(' ', '-')}-{seed}"
                before, trains = processor_seconds(), not common.begun(folder)
                common.train(given.linnet, folder, "anomalies", "--data", file,
                             *common.options([f"training.seed={seed}", *changes, *given.settings]), threads=1)
                seconds = f"{processor_seconds() - before:.0f}" if trains else "-"
                scored = json.loads(common.run(given.linnet, "score", folder / "best", "--window", 12, "--threads", 1, "--json"))
                row = counts(scored["anomalies"], windows, times)
                print(f"{stream} | {name} | {seed} | {row['found']} of {len(windows)} | {row['false']} | {100 * row['share']:.1f} | "
                      f"{row['longest']} | {scored['nats_per_step']:.2f} | {scored['steps_per_second']:.0f} | "
                      f"{scored['state_bytes']} | {seconds}", flush=True)


if __name__ == "__main__":
    main()
