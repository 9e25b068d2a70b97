#!/usr/bin/env python3
"""Anomalies of two labelled streams of the Numenta Anomaly Benchmark (docs/results.md, "Anomalies").

    experiments/anomalies.py LINNET DATA OUT [OPTIONS OF linnet score]

LINNET is the program, DATA the folder with the streams and anomaly_windows.json. For each stream and attention it trains
configs/anomalies.toml into OUT, scores the whole stream, and prints a row: labelled windows with an anomaly in them, and
anomalies outside of all windows. The training part gives the threshold; the labels are read only to count.
"""
import csv
import json
import pathlib
import subprocess
import sys
import time

STREAMS = {"machine_temperature_system_failure": [], "nyc_taxi": []}
ATTENTION = {
    "linear, decay": [],
    "linear, no decay": ["attention.decay=none"],
    "softmax, 128 keys": ["attention.family=local", "attention.decay=none"],
}


def run(*command):
    begin = time.time()
    done = subprocess.run([str(part) for part in command], check=True, capture_output=True, text=True)
    return done.stdout, time.time() - begin


def main():
    linnet, data, out = sys.argv[1], pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3])
    config = pathlib.Path(__file__).resolve().parent.parent / "configs" / "anomalies.toml"
    labels = json.loads((data / "anomaly_windows.json").read_text())
    print("stream | attention | windows found | false alarms | nats per step | steps/s | bytes of state | training, s")
    for stream in STREAMS:
        file = data / f"{stream}.csv"
        with open(file, newline="") as source:
            times = [row[0] for row in list(csv.reader(source))[1:]]
        windows = [(begin[:19], end[:19]) for begin, end in labels[file.name]]
        for name, settings in ATTENTION.items():
            folder = out / f"{stream}-{name.replace(', ', '-').replace(' ', '-')}"
            seconds = 0
            if folder.exists():
                run(linnet, "train", "--resume", folder)  # does nothing where it has come to its end
            else:
                changes = [part for setting in settings for part in ("--set", setting)]
                seconds = run(linnet, "train", config, "--data", file, "--out", folder, "--threads", 1, *changes)[1]
            scored = json.loads(run(linnet, "score", folder / "best", "--threads", 1, "--json", *sys.argv[4:])[0])
            spans = [(times[row["first"]], times[row["last"]]) for row in scored["anomalies"]]
            meets = lambda span, window: span[0] <= window[1] and window[0] <= span[1]
            found = sum(any(meets(span, window) for span in spans) for window in windows)
            false = sum(not any(meets(span, window) for window in windows) for span in spans)
            print(f"{stream} | {name} | {found} of {len(windows)} | {false} | {scored['nats_per_step']:.2f} | "
                  f"{scored['steps_per_second']:.0f} | {scored['state_bytes']} | {seconds:.0f}", flush=True)


main()
