"""Tests of linnet.torch. The folder is not called torch, which would hide PyTorch's absence from an import."""

import pytest

try:
    import torch
except ImportError:
    collect_ignore_glob = ["test_*.py"]
else:

    @pytest.fixture(autouse=True)
    def seeded():
        torch.manual_seed(7)
