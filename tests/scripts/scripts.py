"""Runs scripts with stand-ins for clang-tidy and Python: scripts.py SOURCE."""
import json
import pathlib
import re
import subprocess
import sys
import tempfile


def program(path, text):
    """Writes a program of the shell."""
    path.write_text("#!/bin/sh\n" + text)
    path.chmod(0o755)
    return path


def run(*command, cwd):
    return subprocess.run([str(part) for part in command], cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def check_tidy(source, folder):
    """What clang-tidy finds, and that it ended without looking, are no success."""
    (folder / "src").mkdir()
    (folder / "src/file.cc").write_text("namespace linnet {}\n")
    run("git", "init", "--quiet", cwd=folder)
    run("git", "add", "src/file.cc", cwd=folder)
    finding = "echo 'src/file.cc:1:1: error: something [check]'; exit 1\n"
    for text, said in (("exit 0\n", "tidy: nothing found in 1 files"), (finding, "src/file.cc:1:1: error: something"),
                       ("echo unknown option >&2; exit 1\n", "got status 1: unknown option"),
                       ("echo out of memory >&2; kill -9 $$\n", "got status -9: out of memory"),
                       ("echo a finding; echo stack >&2; exit 134\n", "got status 134: stack")):
        ended = run(sys.executable, source / "scripts/tidy.py", program(folder / "clang-tidy", text), cwd=folder)
        assert said in ended.stdout and (ended.returncode == 0) == (text == "exit 0\n"), (text, ended)


def check_environment(source, folder):
    """An environment gets the packages that it lacks, and nothing is installed twice."""
    program(folder / "pip", f'shift 4; echo "$@" >>{folder}/installed\n')
    python = program(folder / "python", f'mkdir -p "$3/bin"; cp {folder}/pip "$3/bin/pip"\n')
    made = folder / "environment"
    for packages in (["torch", "numpy"], ["numpy", "torch"], ["torch", "pytest"], ["pytest", "numpy"]):
        ended = run(source / "scripts/environment.sh", made, python, *packages, cwd=folder)
        assert ended.returncode == 0, ended
    assert (folder / "installed").read_text().splitlines() == ["torch numpy", "pytest"]
    (folder / "other").mkdir()
    (folder / "other/file").touch()
    assert run(source / "scripts/environment.sh", folder / "other", python, "torch", cwd=folder).returncode == 2
    assert (folder / "other/file").exists()


def check_usage(source, folder):
    """Without arguments a script says what it takes."""
    for script in ("bench/peers/pytorch.sh", "experiments/anomalies.py", "experiments/causal_families.py", "experiments/mnist.py",
                   "experiments/precision.py", "experiments/proteins.py", "experiments/shakespeare.py"):
        ended = run(source / script, cwd=folder)
        assert ended.returncode in (1, 2) and re.search(
            rf"{re.escape(pathlib.Path(script).name)} (\[-h\] )?LINNET", ended.stderr), (script, ended)
        assert "Traceback" not in ended.stderr, ended


def check_presets(source, folder):
    """The presets that docs/testing.md lists can be configured and built, and tested but for that of the fuzz targets."""
    presets = json.loads((source / "CMakePresets.json").read_text())
    names = {kind: {preset["name"] for preset in presets[kind + "Presets"] if not preset.get("hidden")}
             for kind in ("configure", "build", "test")}
    listed = set(re.findall(r"^\| `([a-z-]+)` \| .* \| .*\|$", (source / "docs/testing.md").read_text(), re.M))
    assert listed == names["configure"] == names["build"] == names["test"] | {"fuzz"}, (listed, names)


def main():
    source = pathlib.Path(sys.argv[1])
    for check in (check_tidy, check_environment, check_usage, check_presets):
        with tempfile.TemporaryDirectory() as folder:
            check(source, pathlib.Path(folder))


main()
