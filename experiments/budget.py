"""Training for a budget of time, for the experiments beside this file."""
import json
import pathlib
import subprocess
import sys

# What the rate is planned to be of that measured beforehand: evaluations, checkpoints and other programs take time.
SHARE = 0.92


def run(*command):
    """What a command prints on standard output; progress and errors stay on standard error."""
    return subprocess.run([str(part) for part in command], check=True, stdout=subprocess.PIPE, text=True).stdout


def options(settings):
    return [f"--set={setting}" for setting in settings]


def rows(folder):
    """The measurements of a run: updates and evaluations, the heading left out."""
    lines = (pathlib.Path(folder) / "metrics.jsonl").read_text().splitlines()
    return [row for row in map(json.loads, lines[1:]) if "step" in row]


def train(linnet, config, data, folder, minutes, settings, threads=None):
    """Trains until the time is over, on all threads or on so many. The rate of updates is measured first, so that the
    schedule of the learning rate ends with the budget. A run that was interrupted goes on with the time that it has left."""
    limit = ["--threads", threads] if threads else []
    if not folder.exists():
        bench = json.loads(run(linnet, "bench", "train", "--config", config, "--seconds", min(20, 6 * minutes), "--json",
                               *limit, *options(settings)))
        rate = bench[0]["tokens_per_second"] / (bench[0]["batch"] * bench[0]["length"])
        steps = max(1, round(SHARE * rate * 60 * minutes))
        evaluations = f"training.evaluate_every={max(1, steps // 10)}"
        run(linnet, "train", config, "--data", data, "--out", folder, *limit,
            *options([*settings, f"training.steps={steps}", f"training.minutes={minutes}", evaluations]))
        return
    done = rows(folder)
    left = minutes - (done[-1]["seconds"] / 60 if done else 0)
    if left > 0.01:
        run(linnet, "train", "--resume", folder, *limit, f"--set=training.minutes={left}")


def result(linnet, folder):
    """What the run did, and the loss over all validation examples."""
    last = rows(folder)[-1]
    evaluation = json.loads(run(linnet, "evaluate", folder, "--json"))
    return {"updates": last["step"], "tokens": last["tokens"], "minutes": last["seconds"] / 60,
            "bits": evaluation["bits_per_token"]}


def arguments(usage, minutes):
    """The program, the data, the folder for the results, the minutes (or those given here) and settings of every run."""
    if len(sys.argv) < 4:
        sys.exit(usage)
    given = sys.argv[4:]
    if given and "=" not in given[0]:
        minutes = float(given.pop(0))
    return sys.argv[1], pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3]), minutes, given
