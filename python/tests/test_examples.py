import os
import subprocess
import sys

import pytest
from support import REPOSITORY

EXAMPLES = REPOSITORY / "examples" / "python"


def run(name, *arguments):
    if not EXAMPLES.is_dir():
        pytest.skip(f"no {EXAMPLES}")
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join(path for path in sys.path if path))
    command = [sys.executable, EXAMPLES / name, *map(str, arguments)]
    return subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout


def test_draw_digits(tmp_path):
    assert "40 pictures" in run("draw_digits.py", tmp_path / "digits.png")
    assert (tmp_path / "digits.png").read_bytes().startswith(b"\x89PNG")


def test_own_loop():
    printed = run("own_loop.py", 6)
    assert printed.count("bits a pixel in training") == 6 and "best: " in printed


def test_train_text(tmp_path):
    (tmp_path / "text").write_text("one two three four five six seven eight nine ten\n" * 60)
    printed = run("train_text.py", tmp_path / "text", 12)
    assert "linear" in printed and "softmax" in printed and "Linear attention " in printed
