"""Linnet's attention as operators and modules of PyTorch, on the CPU. Importing it needs torch 2.4 or newer.

``docs/python.md`` is the guide.
"""

try:
    import torch as _torch
except ImportError as error:
    raise ImportError("[linnet.torch] expected PyTorch 2.4 or newer to be installed, got none: pip install torch") from error

_release = tuple(int(part) for part in _torch.__version__.split("+")[0].split(".")[:2])
if _release < (2, 4):
    raise ImportError(f"[linnet.torch] expected PyTorch 2.4 or newer, got {_torch.__version__}")

from ._functions import (  # noqa: E402
    favor_attention,
    linear_attention,
    linear_attention_step,
    linear_state,
    linformer_attention,
    local_attention,
    lsh_attention,
    softmax_attention,
    split_state,
    strided_attention,
)

__all__ = [
    "favor_attention",
    "linear_attention",
    "linear_attention_step",
    "linear_state",
    "linformer_attention",
    "local_attention",
    "lsh_attention",
    "softmax_attention",
    "split_state",
    "strided_attention",
]
