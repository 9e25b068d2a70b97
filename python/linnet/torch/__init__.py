"""Linnet's attention as operators and modules of PyTorch, on the CPU. Importing it needs torch 2.4 or newer.

``docs/python-torch.md`` is the guide.
"""

try:
    import torch as _torch
except ImportError as error:
    raise ImportError("[linnet.torch] expected PyTorch 2.4 or newer to be installed, got none: pip install torch") from error

_release = tuple(int(part) for part in _torch.__version__.split("+")[0].split(".")[:2])
if _release < (2, 4):
    raise ImportError(f"[linnet.torch] expected PyTorch 2.4 or newer, got {_torch.__version__}")

from ._exchange import export, import_  # noqa: E402
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
from ._models import SequenceModel  # noqa: E402
from .fast_transformers.attention import AttentionLayer  # noqa: E402
from .fast_transformers.builders import (  # noqa: E402
    RecurrentDecoderBuilder,
    RecurrentEncoderBuilder,
    TransformerDecoderBuilder,
    TransformerEncoderBuilder,
)
from .fast_transformers.transformers import (  # noqa: E402
    TransformerDecoder,
    TransformerDecoderLayer,
    TransformerEncoder,
    TransformerEncoderLayer,
)

__all__ = [
    "AttentionLayer",
    "RecurrentDecoderBuilder",
    "RecurrentEncoderBuilder",
    "SequenceModel",
    "TransformerDecoder",
    "TransformerDecoderBuilder",
    "TransformerDecoderLayer",
    "TransformerEncoder",
    "TransformerEncoderBuilder",
    "TransformerEncoderLayer",
    "export",
    "favor_attention",
    "import_",
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
