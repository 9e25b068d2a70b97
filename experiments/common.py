"""What the experiments beside this file share: command lines, commands of the program, and runs that go on where they were
interrupted."""
import argparse
import json
import pathlib
import subprocess
import sys


def arguments(text, *places, minutes=None, held=()):
    """The program, these files and folders, and settings that change the configuration of all runs, those of `held` excepted,
    which the experiment itself decides. With `minutes`, those given before the settings, or this number."""
    parser = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("linnet", metavar="LINNET")
    for place in places:
        parser.add_argument(place, metavar=place.upper(), type=pathlib.Path)
    parser.add_argument("settings", metavar="KEY=VALUE" if minutes is None else "[MINUTES] KEY=VALUE", nargs="*")
    given = parser.parse_args()
    given.minutes = minutes
    if minutes is not None and given.settings and "=" not in given.settings[0]:
        try:
            given.minutes = float(given.settings.pop(0))
        except ValueError:
            parser.error("expected a number of MINUTES")
        if not 0 < given.minutes < 1e6:
            parser.error("expected MINUTES above 0")
    for setting in given.settings:
        key, equals, _ = setting.partition("=")
        if not equals or key in held:
            parser.error(f"expected KEY=VALUE with a key that this experiment leaves open, got {setting}")
    for place in places:
        if place != "out" and not getattr(given, place).exists():
            parser.error(f"expected {place.upper()} to be there, got {getattr(given, place)}")
    return given


def run(*command):
    """What a command prints on standard output; progress and errors stay on standard error. Ctrl-C reaches the command too,
    which ends by itself: a training saves a checkpoint before."""
    command = [str(part) for part in command]
    try:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, errors="replace")
    except OSError as error:
        sys.exit(f"expected to start {command[0]}, got: {error.strerror}")
    with process:
        try:
            output, _ = process.communicate()
        except KeyboardInterrupt:
            process.communicate()
            print("interrupted; started again, this goes on", file=sys.stderr)
            sys.exit(130)
    if process.returncode:
        sys.exit(f"expected {' '.join(command[:2])} to succeed, got status {process.returncode}")
    return output


def options(settings):
    return [f"--set={setting}" for setting in settings]


def begin(given, *places):
    """Makes the folder of an experiment, or goes on in one of the same experiment with the same files, minutes and settings."""
    out, record = given.out, given.out / "experiment.json"
    what = {"experiment": pathlib.Path(sys.argv[0]).stem, "settings": given.settings,
            "files": [str(getattr(given, place).resolve()) for place in places]}
    if given.minutes is not None:
        what["minutes"] = given.minutes
    if record.exists():
        before = json.loads(record.read_text())
        if before != what:
            sys.exit(f"expected another folder than {out}, which holds runs of {before}, for {what}")
    elif out.exists() and any(out.iterdir()):
        sys.exit(f"expected a folder that is new or empty, got {out}")
    out.mkdir(parents=True, exist_ok=True)
    record.write_text(json.dumps(what) + "\n")


def limit(threads):
    return ["--threads", threads] if threads else []


def begun(folder):
    return (folder / "run.toml").exists()


def train(linnet, folder, *command, threads=None):
    """Trains, on all threads or on so many, or goes on with a run that was interrupted; does nothing where it has come to its
    end."""
    if begun(folder):
        run(linnet, "train", "--resume", folder, *limit(threads))
    else:
        run(linnet, "train", *command, "--out", folder, *limit(threads))


def rows(folder):
    """The measurements of a run: updates and evaluations, the heading left out."""
    lines = (pathlib.Path(folder) / "metrics.jsonl").read_text().splitlines()
    return [row for row in map(json.loads, lines[1:]) if "step" in row]
