import os
import re
import subprocess
import sys

import numpy as np
import pytest
from support import REPOSITORY, tiny

import linnet


def python_blocks(name):
    path = REPOSITORY / name
    if not path.is_file():
        pytest.skip(f"no {path}")
    return re.findall(r"```python\n(.*?)```", path.read_text(), re.DOTALL)


@pytest.mark.parametrize("page", ["docs/python.md", "README.md"])
def test_the_code_of_a_page_runs(page, tmp_path):
    """All blocks of a page, one after another, as one program in the repository's folder."""
    blocks = python_blocks(page)
    assert blocks
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join(path for path in sys.path if path))
    program = f"OUT = {str(tmp_path)!r}\n" + "\n".join(blocks)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment, cwd=REPOSITORY)
    assert done.returncode == 0, done.stderr


def test_everything_public_is_documented():
    for name in linnet.__all__:
        thing = getattr(linnet, name)
        if name.startswith("__"):
            continue
        assert thing.__doc__ and len(thing.__doc__) > 10, name
        if not isinstance(thing, type):
            continue
        for member, value in vars(thing).items():
            if member.startswith("_") or not (callable(value) or isinstance(value, property)):
                continue
            assert value.__doc__ or isinstance(value, staticmethod | classmethod), f"{name}.{member}"


def test_objects_show_what_they_are():
    writer = linnet.random_model(tiny(model__vocabulary=256))
    for thing, shown in (
        (linnet.Attention("softmax"), "<linnet.Attention: softmax>"),
        (linnet.Attention(feature_map="relu"), "<linnet.Attention: linear, relu>"),
        (linnet.Attention("kernel"), "<linnet.Attention: kernel, exponential>"),
        (linnet.Attention().state(3, 1, 2), "<linnet.State: 3 slots, linear>"),
        (linnet.Trainer(tiny()), "<linnet.Trainer: 0 updates>"),
        (writer.text_stream(), "<linnet.TextStream of <linnet.Tokenizer: 256 tokens>>"),
    ):
        assert repr(thing) == shown


def test_stubs_and_configurations_are_installed():
    folder = os.path.dirname(linnet.__file__)
    for name in ("py.typed", "_core.pyi", "configs/digits.toml"):
        assert os.path.isfile(os.path.join(folder, name)), name
    assert np.all([row["key"] for row in linnet.settings()])
