"""The code of docs/python-torch.md and the example run."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[3]


def run(*command):
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join(path for path in sys.path if path))
    done = subprocess.run([sys.executable, *map(str, command)], capture_output=True, text=True, env=environment, cwd=REPOSITORY)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_code_of_the_guide_runs(tmp_path):
    page = REPOSITORY / "docs" / "python-torch.md"
    if not page.is_file():
        pytest.skip(f"no {page}")
    blocks = re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
    assert blocks
    run("-c", f"OUT = {str(tmp_path)!r}\n" + "\n".join(blocks))


def test_own_model():
    example = REPOSITORY / "examples" / "python" / "own_model_torch.py"
    if not example.is_file():
        pytest.skip(f"no {example}")
    assert "letters repeated" in run(example, 3)


def test_importing_linnet_does_not_import_pytorch():
    run("-c", "import sys, linnet; assert 'torch' not in sys.modules and 'linnet.torch' not in sys.modules")
