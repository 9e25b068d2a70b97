"""Training for a budget of time, for the experiments beside this file."""
import json

import common
from common import begun, limit, options, rows, run

# What the rate is planned to be of that measured beforehand: evaluations, checkpoints and other programs take time.
SHARE = 0.92

# What the budget decides.
HELD = ("training.steps", "training.minutes", "training.evaluate_every")


def train(linnet, config, data, folder, minutes, settings, threads=None):
    """Trains until the time is over, on all threads or on so many. The rate of updates is measured first, so that the
    schedule of the learning rate ends with the budget. A run that was interrupted goes on with the time that it had left at
    its newest checkpoint."""
    if not begun(folder):
        bench = json.loads(run(linnet, "bench", "train", "--config", config, "--seconds", min(20, 6 * minutes), "--json",
                               *limit(threads), *options(settings)))
        rate = bench[0]["tokens_per_second"] / (bench[0]["batch"] * bench[0]["length"])
        steps = max(1, round(SHARE * rate * 60 * minutes))
        evaluations = f"training.evaluate_every={max(1, steps // 10)}"
        planned = [f"training.steps={steps}", f"training.minutes={minutes}", evaluations]
        common.train(linnet, folder, config, "--data", data, *options([*settings, *planned]), threads=threads)
        return
    saved = max((int(path.name) for path in folder.glob("checkpoints/*") if path.name.isdigit()), default=0)
    done = [row["seconds"] for row in (rows(folder) if saved else []) if row["step"] <= saved]
    left = minutes - max(done, default=0) / 60
    if left > 0.01:
        run(linnet, "train", "--resume", folder, *limit(threads), f"--set=training.minutes={left}")


def result(linnet, folder):
    """What the run did, and the loss over all validation examples."""
    last = rows(folder)[-1]
    evaluation = json.loads(run(linnet, "evaluate", folder, "--json"))
    return {"updates": last["step"], "tokens": last["tokens"], "minutes": last["seconds"] / 60,
            "bits": evaluation["bits_per_token"]}
