"""Runs experiments with tiny models on small data: experiments.py LINNET FOLDER_OF_EXPERIMENTS."""
import datetime
import json
import math
import pathlib
import re
import subprocess
import sys
import tempfile

TINY = ["model.layers=1", "model.width=16", "model.heads=2", "model.feed_forward=16", "training.batch=2",
        "training.evaluate_examples=2", "training.log_every=1"]


def run(*command):
    return subprocess.run([str(part) for part in command], check=True, stdout=subprocess.PIPE, text=True).stdout


def table(text):
    """The rows of a table behind its heading, as lists of columns."""
    return [line.split(" | ") for line in text.splitlines() if " | " in line][1:]


def last_step(folder):
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return rows[-1]["step"]


def check_mnist(linnet, experiments, folder):
    data, out = folder / "digits", folder / "mnist"
    run(linnet, "data", "digits", "--out", data, "--count", 40, "--test", 8)
    minutes = 0.02
    command = [sys.executable, experiments / "mnist.py", linnet, data, out, minutes, *TINY]
    rows = table(run(*command))
    assert [row[0] for row in rows] == ["linear-decay", "softmax"], rows
    for name, updates, images, used, bits in rows:
        assert int(updates) == last_step(out / name) > 0, rows
        assert int(images) == 2 * int(updates), rows
        assert 0 < float(bits) < 9, rows
        for picture in ("samples", "halves"):
            assert (out / f"{name}-{picture}.png").read_bytes().startswith(b"\x89PNG"), picture
    assert "<svg" in (out / "mnist.svg").read_text()
    # Once more it trains no further: what is done counts.
    assert [row[:3] for row in table(run(*command))] == [row[:3] for row in rows]


def check_an_interrupted_run(linnet, experiments, folder):
    sys.path.append(str(experiments))
    import budget

    out, config = folder / "interrupted", experiments / "mnist.toml"
    settings = [*TINY, "training.checkpoint_every=1"]
    budget.train(linnet, config, folder / "digits", out, 0.01, settings)
    before = last_step(out)
    # With a larger budget than the one it was begun with, as after an interruption.
    run(linnet, "train", "--resume", out, "--set", f"training.steps={before + 100000}", "--set", "training.minutes=0.001")
    budget.train(linnet, config, folder / "digits", out, 0.05, settings)
    seconds = budget.rows(out)[-1]["seconds"]
    assert last_step(out) > before + 1
    assert seconds / 60 > 0.03, seconds  # the whole budget, but for what a stop leaves


def check_shakespeare(linnet, experiments, folder):
    text = folder / "text.txt"
    text.write_text("the quick brown fox jumps over the lazy dog. " * 400)
    printed = run(sys.executable, experiments / "shakespeare.py", linnet, text, folder / "text", 0.02, *TINY,
                  "training.evaluate_examples=0")
    rows = table(printed)
    assert re.match(r"threads: \d+\n", printed), printed
    assert rows[-1][0] == "Linnet" and 0 < float(rows[-1][4]) < 9, printed
    assert len(printed.splitlines()) > 2, "no text was generated"


def check_precision(linnet, experiments, folder):
    out = folder / "precision"
    rows = table(run(sys.executable, experiments / "precision.py", linnet, out, *TINY, "training.steps=4",
                     "training.evaluate_every=2", "training.checkpoint_every=4", "training.sample_every=0"))
    assert [row[0] for row in rows] == ["2", "4"], rows
    assert all(re.fullmatch(r"\d\.\d{4}", loss) for row in rows for loss in row[1:]), rows
    assert all(len(row) == 7 for row in rows), rows
    assert rows[0][1] != rows[0][2], "seeds make no difference"
    assert "<svg" in (out / "precision.svg").read_text()


def check_anomalies(linnet, experiments, folder):
    data, out = folder / "nab", folder / "anomalies"
    data.mkdir()
    times = [datetime.datetime(2014, 7, 1) + datetime.timedelta(minutes=30 * i) for i in range(1000)]
    values = [math.sin(i / 5) + i % 7 / 20 for i in range(1000)]
    values[700] = 100  # the anomaly
    windows = {}
    for name in ("machine_temperature_system_failure.csv", "nyc_taxi.csv"):
        (data / name).write_text("timestamp,value\n" + "".join(f"{t},{v:.3f}\n" for t, v in zip(times, values)))
        windows["realKnownCause/" + name] = [[f"{times[i]}.000000" for i in (690, 730)]]
    (data / "anomaly_windows.json").write_text(json.dumps(windows))
    command = [sys.executable, experiments / "anomalies.py", linnet, data, out, *TINY, "data.length=32", "training.steps=20",
               "training.warmup=2", "training.evaluate_every=20"]
    rows = table(run(*command))
    assert len(rows) == 6 and all(row[2] == "1 of 1" and re.fullmatch(r"\d+", row[7]) for row in rows), rows
    # Started again it trains no further, and has no time to state.
    again = table(run(*command))
    assert [row[:5] for row in again] == [row[:5] for row in rows] and all(row[7] == "-" for row in again), again


def main():
    linnet, experiments = sys.argv[1], pathlib.Path(sys.argv[2])
    with tempfile.TemporaryDirectory() as folder:
        for check in (check_mnist, check_an_interrupted_run, check_shakespeare, check_precision, check_anomalies):
            check(linnet, experiments, pathlib.Path(folder))


main()
