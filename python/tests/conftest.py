import importlib.util
import os
from pathlib import Path

import pytest

import linnet
from support import REPOSITORY


def pytest_report_header():
    if importlib.util.find_spec("torch") is None:
        return "PyTorch is not installed: the tests of linnet.torch (pytorch/) are skipped"
    return None


@pytest.fixture(scope="session")
def digits():
    folder = REPOSITORY / "models" / "digits"
    if not folder.is_dir():
        pytest.skip(f"no {folder}")
    return linnet.load(folder)


@pytest.fixture(scope="session")
def program():
    """The C++ program: LINNET_PROGRAM, or that of the release build."""
    path = Path(os.environ.get("LINNET_PROGRAM", REPOSITORY / "build/release/apps/linnet/linnet"))
    if not path.is_file():
        pytest.skip(f"no {path}; LINNET_PROGRAM names the program")
    return path
