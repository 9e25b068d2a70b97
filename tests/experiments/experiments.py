"""Runs experiments with tiny models on small data: experiments.py LINNET FOLDER_OF_EXPERIMENTS."""
import datetime
import importlib
import json
import math
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

TINY = ["model.layers=1", "model.width=16", "model.heads=2", "model.feed_forward=16", "training.batch=2",
        "training.evaluate_examples=2", "training.log_every=1"]


def run(*command):
    return subprocess.run([str(part) for part in command], check=True, stdout=subprocess.PIPE, text=True).stdout


def refused(*command):
    """What a command that ends with a mistake says on standard error, without a traceback."""
    ended = subprocess.run([str(part) for part in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert ended.returncode in (1, 2) and "Traceback" not in ended.stderr, ended
    return ended.stderr


def table(text):
    """The rows of a table behind its heading, as lists of columns."""
    return [line.split(" | ") for line in text.splitlines() if " | " in line][1:]


def module(name, experiments):
    sys.path.append(str(experiments))
    return importlib.import_module(name)


def last_step(folder):
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return rows[-1].get("step", 0)


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
    # Its folder is that of these settings alone, and the budget decides the number of updates.
    assert "another folder" in refused(*command, "training.seed=7")
    assert "training.steps=3" in refused(*command[:4], folder / "other", minutes, "training.steps=3")
    assert "expected a number of MINUTES" in refused(*command[:4], folder / "other", "soon")
    assert "expected MNIST to be there" in refused(*command[:3], folder / "missing", folder / "other")
    assert "expected to start" in refused(*command[:2], folder / "linnet", data, folder / "other")
    assert "another folder" in refused(sys.executable, experiments / "causal_families.py", linnet, data, out, *TINY)
    copied = folder / "copied"
    shutil.copytree(data, copied)
    assert "another folder" in refused(*command[:3], copied, *command[4:])


def check_an_interrupted_run(linnet, experiments, folder):
    """Ctrl-C, which reaches the script and the program: a checkpoint is saved, from which the next call goes on."""
    out = folder / "interrupted"
    command = [sys.executable, experiments / "mnist.py", linnet, folder / "digits", out, 0.1, *TINY]
    process = subprocess.Popen([str(part) for part in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                               start_new_session=True, preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler))
    run_of_first, deadline = out / "linear-decay", time.monotonic() + 60
    while not (run_of_first / "metrics.jsonl").exists() or last_step(run_of_first) < 5:
        assert process.poll() is None and time.monotonic() < deadline, process.communicate()
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGINT)
    _, said = process.communicate(timeout=120)
    assert process.returncode == 130 and "Traceback" not in said, said
    stopped = last_step(run_of_first)
    assert (run_of_first / "checkpoints" / str(stopped)).is_dir(), said
    assert not (out / "softmax").exists(), "went on after Ctrl-C"
    rows = table(run(*command))
    assert int(rows[0][1]) > stopped, rows
    # The whole budget, but for what the end of a run leaves, or all updates that were planned.
    planned = int(re.search(r"^steps = (\d+)", (run_of_first / "run.toml").read_text(), re.M)[1])
    assert float(rows[0][3]) > 0.06 or int(rows[0][1]) == planned, rows


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
    assert len(rows) == 18 and all(row[3] == "1 of 1" and re.fullmatch(r"\d+", row[10]) for row in rows), rows
    assert [row[2] for row in rows] == ["1", "2", "3"] * 6, rows
    # Started again it trains no further, and has no time to state.
    again = table(run(*command))
    assert [row[:8] for row in again] == [row[:8] for row in rows] and all(row[10] == "-" for row in again), again
    counts = module("anomalies", experiments).counts
    times = [f"{i:02}" for i in range(20)]
    found = counts([{"first": 3, "last": 6}, {"first": 15, "last": 16}], [("05", "09")], times)
    assert found == {"found": 1, "false": 1, "share": 4 / 15, "longest": 4}, found


def check_families_and_proteins(linnet, experiments, folder):
    settings = [*TINY, "training.evaluate_every=2", "training.steps=2", "training.warmup=0"]
    command = [sys.executable, experiments / "causal_families.py", linnet, folder / "digits", folder / "families", *settings]
    rows = table(run(*command))
    assert [row[:2] for row in rows] == [[config, family] for config in ("copy", "mnist-small") for family in
                                         ("linear", "softmax", "favor", "local", "strided", "lsh")], rows
    assert all("<svg" in (folder / "families" / f"{config}.svg").read_text() for config in ("copy", "mnist-small"))
    fasta = folder / "proteins.fasta"
    fasta.write_text("".join(f">{i}\n" + "".join("ACDEFGHIKLMNPQRSTVWY"[(i * j) % 20] for j in range(1, 300)) + "\n"
                             for i in range(12)))
    rows = table(run(sys.executable, experiments / "proteins.py", linnet, fasta, folder / "proteins", *settings))
    assert len(rows) == 8 and all(float(row[1]) > 1 and int(row[3]) > 0 for row in rows), rows


def main():
    linnet, experiments = sys.argv[1], pathlib.Path(sys.argv[2])
    with tempfile.TemporaryDirectory() as folder:
        for check in (check_mnist, check_an_interrupted_run, check_shakespeare, check_precision, check_anomalies,
                      check_families_and_proteins):
            check(linnet, experiments, pathlib.Path(folder))


main()
