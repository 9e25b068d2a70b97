#!/usr/bin/env python3
"""Anomalies of two labelled streams of the Numenta Anomaly Benchmark (docs/results.md, "Anomalies").

    experiments/anomalies.py LINNET DATA OUT [KEY=VALUE ...]

LINNET is the program. DATA holds the streams machine_temperature_system_failure.csv and nyc_taxi.csv (the benchmark's
data/realKnownCause) and their labels as anomaly_windows.json (its labels/combined_windows.json). For each stream and attention
the script trains configs/anomalies.toml, changed by KEY=VALUE, into OUT, scores the whole stream, and prints a row: labelled
windows with an anomaly in them, anomalies outside of all windows, and the processor time of training, where this call has
trained. The training part gives the threshold; the labels are read only to count.
"""
import csv
import json
import pathlib
import resource
import sys

import budget

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


def processor_seconds(*command):
    """What a command takes of all processors."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    budget.run(*command)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def meet(span, window):
    return span[0] <= window[1] and window[0] <= span[1]


def main():
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    linnet, data, out, settings = sys.argv[1], pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3]), sys.argv[4:]
    config = pathlib.Path(__file__).resolve().parent.parent / "configs" / "anomalies.toml"
    labels = labelled_windows(data)
    print("stream | attention | windows found | false alarms | nats per step | steps/s | bytes of state | training, s")
    for stream in STREAMS:
        file = data / f"{stream}.csv"
        with open(file, newline="") as source:
            times = [row[0] for row in list(csv.reader(source))[1:]]
        windows = labels[file.name]
        for name, changes in ATTENTION.items():
            folder = out / f"{stream}-{name.replace(', ', '-').replace(' ', '-')}"
            if folder.exists():
                budget.run(linnet, "train", "--resume", folder)  # does nothing where it has come to its end
                seconds = "-"
            else:
                seconds = "%.0f" % processor_seconds(linnet, "train", config, "--data", file, "--out", folder, "--threads", 1,
                                                     *budget.options([*changes, *settings]))
            scored = json.loads(budget.run(linnet, "score", folder / "best", "--window", 12, "--threads", 1, "--json"))
            spans = [(times[row["first"]], times[row["last"]]) for row in scored["anomalies"]]
            found = sum(any(meet(span, window) for span in spans) for window in windows)
            false = sum(not any(meet(span, window) for window in windows) for span in spans)
            print(f"{stream} | {name} | {found} of {len(windows)} | {false} | {scored['nats_per_step']:.2f} | "
                  f"{scored['steps_per_second']:.0f} | {scored['state_bytes']} | {seconds}", flush=True)


if __name__ == "__main__":
    main()
