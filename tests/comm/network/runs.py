"""Runs of `linnet train` for the tests and measurements of this folder."""

import json
import os
import subprocess
import tempfile
import time

# The last is what Open MPI 5 calls the one before.
ENVIRONMENT = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
}
LIMIT = 120  # seconds of a run of a test

SMALL = ["digits", "--threads", "1", "--set", "data.examples=400", "model.layers=2", "training.batch=2", "training.accumulate=4",
         "training.log_every=1", "training.evaluate_examples=8", "training.sample_every=0"]


def run(command, limit=LIMIT, while_waiting=lambda: True):
    """What the command prints, and its status; 124 where it takes too long. Calls `while_waiting` until it is true."""
    with tempfile.TemporaryFile("w+") as output:
        with subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT) as process:
            end = time.monotonic() + limit
            waiting = True
            while process.poll() is None and time.monotonic() < end:
                waiting = waiting and not while_waiting()
                time.sleep(0.01)
            late = process.poll() is None
            process.kill()
        output.seek(0)
        return output.read(), 124 if late else process.returncode


def succeed(command, limit=LIMIT):
    text, status = run(command, limit)
    if status != 0:
        raise AssertionError("expected status 0, got %d of %s:\n%s" % (status, " ".join(command), text))


def lines_of(folder):
    with open(os.path.join(folder, "metrics.jsonl"), encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def metrics(folder):
    """The lines of metrics.jsonl without the times."""
    times = ("seconds", "tokens_per_second")
    return [{key: value for key, value in line.items() if key not in times} for line in lines_of(folder)]


def speeds(folder):
    """Tokens per second of the updates but the first, which also prepares."""
    return [line["tokens_per_second"] for line in lines_of(folder) if "tokens_per_second" in line][1:]


def seconds(folder):
    """The time of the updates, without that of starting."""
    return [line["seconds"] for line in lines_of(folder) if "tokens_per_second" in line][-1]


def model(folder):
    with open(os.path.join(folder, "model.safetensors"), "rb") as file:
        return file.read()
