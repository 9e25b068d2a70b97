import inspect
import os
import site
import subprocess
import sys
from pathlib import Path

import pytest

import linnet

HERE = Path(__file__).parent


def check(folder, *arguments):
    """What mypy finds, with a cache in the folder."""
    pytest.importorskip("mypy")
    place = str(Path(linnet.__file__).parents[1])
    environment = {name: value for name, value in os.environ.items() if name != "MYPYPATH"}
    if place not in site.getsitepackages():
        environment["MYPYPATH"] = place
    command = [sys.executable, "-m", "mypy", "--config-file=", f"--cache-dir={folder / 'cache'}", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_typed_program_has_the_types_that_it_asserts(tmp_path):
    check(tmp_path, "--strict", HERE / "typed_program.py")


def test_the_modules_of_the_package_have_the_types_that_they_say(tmp_path):
    check(tmp_path, "--package", "linnet", "--exclude", "linnet/torch")


def functions():
    """What is public and written in Python: functions, and methods and properties of classes."""
    for name in linnet.__all__:
        thing = getattr(linnet, name)
        if inspect.isfunction(thing):
            yield name, thing
        for member, value in inspect.getmembers_static(thing) if inspect.isclass(thing) else ():
            value = getattr(value, "fget", None) or getattr(value, "func", None) or getattr(value, "__func__", value)
            public = not member.startswith("_") or member in ("__init__", "__call__", "__getitem__")
            if public and inspect.isfunction(value):
                yield f"{name}.{member}", value


def test_every_public_function_is_annotated():
    found = dict(functions())
    assert {"attention", "Attention.__call__", "Dataset.open", "Model.tokenizer", "Session.limit"} <= set(found)
    for name, function in found.items():
        signature = inspect.signature(function)
        bare = [key for key, parameter in signature.parameters.items() if parameter.annotation is parameter.empty]
        assert bare in ([], ["self"], ["cls"]), f"{name}: {bare}"
        assert name.endswith("__init__") or signature.return_annotation is not signature.empty, name
