"""Checks of what the functions of linnet.torch accept. Every error is one sentence, ``[operation] expected ..., got ...``."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch

from .. import _core

_NAMES = {
    "feature_map": tuple(row["name"] for row in _core.feature_maps()),
    "normalise": ("sum", "none"),
    "pattern": ("strided", "fixed"),
}
_DTYPES = (torch.float32, torch.bfloat16, torch.float64)


def refuse(operation: str, expected: str, found: str):
    raise _core.UsageError(f"[{operation}] expected {expected}, got {found}")


def refuse_type(operation: str, expected: str, found: str):
    raise _core.ArgumentTypeError(f"[{operation}] expected {expected}, got {found}")


def _type_name(value) -> str:
    return type(value).__name__


class Mask(NamedTuple):
    """Which keys a query sees, as the operators take it."""

    kind: str = "full"
    left: int = 0
    right: int = 0
    bounds: torch.Tensor | None = None  # prefix lengths [batch or 1], or interval bounds [2, queries]
    key_lengths: torch.Tensor | None = None  # [batch]
    segments: torch.Tensor | None = None  # [bounds], or [batch, bounds] with -1 behind shorter lists
    visible: torch.Tensor | None = None  # bool [batch or 1, queries, keys]


def numbers(operation: str, name: str, value, dimensions: int = 1) -> torch.Tensor:
    """Whole numbers as an int64 tensor on the CPU."""
    if isinstance(value, torch.Tensor):
        if value.dtype not in (torch.int64, torch.int32) or value.dim() != dimensions:
            refuse_type(
                operation, f"{name} of whole numbers with {dimensions} dimension(s)", f"{value.dtype} {list(value.shape)}"
            )
        if value.device.type != "cpu":
            refuse(operation, f"{name} on the CPU", f"a tensor on {value.device}")
        return value.to(torch.int64)
    try:
        return torch.tensor(value, dtype=torch.int64)
    except (TypeError, ValueError, RuntimeError):
        refuse_type(operation, f"{name} as whole numbers", _type_name(value))


def _segments(operation, value):
    if isinstance(value, torch.Tensor):
        return numbers(operation, "segments", value, value.dim() if value.dim() in (1, 2) else 1)
    if len(value) > 0 and not isinstance(value[0], int):
        longest = max(len(row) for row in value)
        value = [list(row) + [-1] * (longest - len(row)) for row in value]
    return numbers(operation, "segments", value)


def mask_of(operation, mask, *, prefix=None, window=None, intervals=None, key_lengths=None, segments=None) -> Mask:
    """The mask that the keyword arguments of an operator describe."""
    named = [name for name, value in (("prefix", prefix), ("window", window), ("intervals", intervals)) if value is not None]
    if len(named) > 1:
        refuse(operation, "one of prefix, window and intervals", " and ".join(named))
    parts = {}
    if isinstance(mask, torch.Tensor):
        if mask.dtype not in (torch.bool, torch.uint8) or mask.dim() not in (2, 3):
            refuse_type(operation, "a mask of bool [queries, keys] or [batch, queries, keys]", f"{mask.dtype} {list(mask.shape)}")
        if mask.device.type != "cpu":
            refuse(operation, "a mask on the CPU", f"a tensor on {mask.device}")
        if named:
            refuse(operation, f"no mask beside {named[0]}", "a boolean one")
        parts = {"kind": "boolean", "visible": (mask if mask.dim() == 3 else mask[None]).to(torch.bool)}
    elif mask not in (None, "full", "causal"):
        refuse(
            operation, "a mask of 'full', 'causal' or a boolean tensor", repr(mask) if isinstance(mask, str) else _type_name(mask)
        )
    elif prefix is not None:
        parts = {"kind": "prefix", "bounds": numbers(operation, "prefix", [prefix] if isinstance(prefix, int) else prefix)}
    elif window is not None:
        left, right = (window, 0) if isinstance(window, int) else window
        if mask == "causal" and right > 0:
            right = 0
        parts = {"kind": "window", "left": int(left), "right": int(right)}
    elif intervals is not None:
        begin, end = (numbers(operation, "intervals", bounds) for bounds in intervals)
        parts = {"kind": "intervals", "bounds": torch.stack([begin, end])}
    else:
        parts = {"kind": mask or "full"}
    if key_lengths is not None:
        parts["key_lengths"] = numbers(operation, "key_lengths", key_lengths)
    if segments is not None:
        parts["segments"] = _segments(operation, segments)
    return Mask(**parts)


def check_tensor(operation: str, name: str, value, dimensions: int) -> torch.Tensor:
    if (
        isinstance(value, torch.Tensor)
        and value.is_cpu
        and value.layout == torch.strided
        and value.dim() == dimensions
        and value.dtype in _DTYPES
    ):
        return value
    if not isinstance(value, torch.Tensor):
        refuse_type(operation, f"{name} as a torch.Tensor", _type_name(value))
    if value.device.type not in ("cpu", "meta"):
        refuse(operation, f"{name} on the CPU", f"a tensor on {value.device}")
    if value.layout != torch.strided:
        refuse(operation, f"{name} as a dense tensor", str(value.layout))
    if value.dim() != dimensions:
        refuse(operation, f"{name} of {dimensions} dimensions", f"{list(value.shape)}")
    if value.dtype not in _DTYPES:
        refuse_type(operation, f"{name} of float32, bfloat16 or float64", str(value.dtype))
    return value


def sequences(operation: str, q, k, v, layout: str):
    """q, k and v as [batch, length, heads, dim], of one element type: under autocast its own."""
    if layout not in ("bnhd", "bhnd"):
        refuse(operation, "layout 'bnhd' or 'bhnd'", repr(layout))
    for name, tensor in (("q", q), ("k", k), ("v", v)):
        check_tensor(operation, name, tensor, 4)
    same = k is q
    if torch.is_autocast_enabled("cpu") and q.dtype != torch.float64:
        dtype = torch.get_autocast_dtype("cpu")
        if dtype != torch.bfloat16:
            refuse_type(operation, "autocast to bfloat16", str(dtype))
        q, v = q.to(dtype), v.to(dtype)
        k = q if same else k.to(dtype)
    if not q.dtype == k.dtype == v.dtype:
        refuse_type(operation, "q, k and v of one dtype", f"{q.dtype}, {k.dtype} and {v.dtype}")
    for name, tensor in (("q", q), ("k", k), ("v", v)):
        if tensor.stride(3) != 1 and tensor.size(3) > 1 and tensor.dtype != torch.float64:
            refuse(operation, f"{name} whose last axis is contiguous", f"strides {list(tensor.stride())}")
    if layout == "bhnd":
        q, v = q.transpose(1, 2), v.transpose(1, 2)
        k = q if same else k.transpose(1, 2)
    batch, _, heads, head_dim = q.shape
    wanted = (batch, k.size(1), heads)
    if k.shape != (*wanted, head_dim) or v.shape[:3] != wanted:
        refuse(
            operation,
            "q [B, L, H, E], k [B, S, H, E] and v [B, S, H, M]",
            f"{list(q.shape)}, {list(k.shape)} and {list(v.shape)}",
        )
    return q, k, v


def float_rows(operation: str, name: str, value, shape, dtype) -> torch.Tensor:
    """A tensor of `shape` (None: any extent), float32 beside float32 and bfloat16, float64 beside float64."""
    if not isinstance(value, torch.Tensor):
        refuse_type(operation, f"{name} as a torch.Tensor", _type_name(value))
    if value.dim() != len(shape) or any(wanted is not None and wanted != found for wanted, found in zip(shape, value.shape)):
        wanted = ", ".join("any" if extent is None else str(extent) for extent in shape)
        refuse(operation, f"{name} [{wanted}]", f"{list(value.shape)}")
    if value.dtype not in _DTYPES:
        refuse_type(operation, f"{name} of float32", str(value.dtype))
    if value.device.type not in ("cpu", "meta"):
        refuse(operation, f"{name} on the CPU", f"a tensor on {value.device}")
    value = value.to(torch.float64 if dtype == torch.float64 else torch.float32)
    return value if value.shape[-1] <= 1 or value.stride(-1) == 1 else value.contiguous()


def check_options(operation: str, **options) -> None:
    """Throws unless the options of an attention are numbers, and its names known ones."""
    for name, value in options.items():
        if name in _NAMES:
            if not isinstance(value, str):
                refuse_type(operation, f"{name} as text", _type_name(value))
            if value not in _NAMES[name]:
                refuse(operation, f"{name} of {', '.join(_NAMES[name])}", repr(value))
        elif name in ("alpha", "epsilon", "scale"):
            if not isinstance(value, (int, float)):
                refuse_type(operation, f"{name} as a number", _type_name(value))
        elif not isinstance(value, int):
            refuse_type(operation, f"{name} as a whole number", _type_name(value))
        elif value < 0:
            refuse(operation, f"{name} of at least 0", str(value))


def default_features(head_dim: int) -> int:
    """F of a random feature map where none is given: E ln E, rounded up to a multiple of 16."""
    return 16 * max(1, math.ceil(head_dim * math.log(head_dim) / 16))
