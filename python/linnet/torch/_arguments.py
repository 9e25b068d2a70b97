"""Checks of what the functions of linnet.torch accept. Every error is one sentence, ``[operation] expected ..., got ...``."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch

from .. import _core

NAMES = {
    "feature_map": tuple(row["name"] for row in _core.feature_maps()),
    "directions": ("auto", "orthogonal", "independent", "hadamard"),
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


_FULL, _CAUSAL = Mask("full"), Mask("causal")
_WHOLE = (int, np.integer)
_LARGEST = 2**63 - 1
_LARGEST_LAYER = 2**31 - 1


def whole(operation: str, name: str, value, least: int = 0, most: int = _LARGEST) -> int:
    """A whole number from `least` to `most`, and not a truth value or a rounded number."""
    if isinstance(value, bool):
        refuse_type(operation, f"{name} as a whole number", "bool")
    if not isinstance(value, (int, torch.SymInt)):
        try:
            value = operator.index(value)
        except TypeError:
            refuse_type(operation, f"{name} as a whole number", _type_name(value))
    if value < least:
        refuse(operation, f"{name} of at least {least}", str(value))
    if value > most:
        refuse(operation, f"{name} of at most {most}", str(value))
    return value


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
        found = list(value)
    except TypeError:
        refuse_type(operation, f"{name} as a sequence of whole numbers", _type_name(value))
    found = [whole(operation, f"an entry of {name}", number) for number in found]
    return torch.tensor(found, dtype=torch.int64, device="cpu")


def _is_row(value):
    if isinstance(value, (torch.Tensor, np.ndarray)):
        return value.ndim > 0
    return isinstance(value, Sequence) and not isinstance(value, str)


def _segments(operation, value):
    if isinstance(value, torch.Tensor):
        return numbers(operation, "segments", value, value.dim() if value.dim() in (1, 2) else 1)
    try:
        rows = list(value)
        if not rows or not _is_row(rows[0]):
            return numbers(operation, "segments", rows)
        rows = [numbers(operation, "segments", row) for row in rows]
    except TypeError:
        refuse_type(operation, "segments as a list of bounds, or one for each batch entry", _type_name(value))
    longest = max(len(row) for row in rows)
    return torch.stack([torch.nn.functional.pad(row, (0, longest - len(row)), value=-1) for row in rows])


def _pair(operation, name, value):
    try:
        first, second = value
    except (TypeError, ValueError):
        refuse_type(operation, f"{name} as a pair", _type_name(value))
    return first, second


def _interval_bounds(operation, intervals, queries):
    begin, end = (numbers(operation, "intervals", bounds) for bounds in _pair(operation, "intervals", intervals))
    if not len(begin) == len(end) == queries:
        refuse(operation, f"intervals of {queries} begins and ends", f"{len(begin)} and {len(end)}")
    return torch.stack([begin, end])


def _visible(operation, q, k, mask):
    """A boolean mask as bool [batch or 1, queries, keys]."""
    if isinstance(mask, np.ndarray):
        if mask.dtype not in (np.bool_, np.uint8):
            refuse_type(operation, "a mask of bool [queries, keys] or [batch, queries, keys]", f"{mask.dtype} {list(mask.shape)}")
        mask = torch.tensor(mask, device="cpu")
    if mask.dim() == 4 and mask.shape[1] == 1:  # the same for all heads
        mask = mask[:, 0]
    if mask.dtype not in (torch.bool, torch.uint8) or mask.dim() not in (2, 3):
        refuse_type(operation, "a mask of bool [queries, keys] or [batch, queries, keys]", f"{mask.dtype} {list(mask.shape)}")
    if mask.device.type != "cpu":
        refuse(operation, "a mask on the CPU", f"a tensor on {mask.device}")
    visible = (mask if mask.dim() == 3 else mask[None]).to(torch.bool)
    if visible.shape[0] not in (1, q.shape[0]) or visible.shape[1:] != (q.shape[1], k.shape[1]):
        padding = " (padded keys: key_lengths=)" if tuple(mask.shape) == (q.shape[0], k.shape[1]) else ""
        refuse(operation, f"a mask [{q.shape[0]} or 1, {q.shape[1]}, {k.shape[1]}]{padding}", f"{list(mask.shape)}")
    return visible


def mask_of(operation, q, k, mask, *, prefix=None, window=None, intervals=None, key_lengths=None, segments=None) -> Mask:
    """The mask that the keyword arguments of an operator describe, for q and k [batch, length, heads, dim]."""
    if isinstance(mask, str) and prefix is window is intervals is key_lengths is segments is None:
        if mask == "full":
            return _FULL
        if mask == "causal":
            _check_square(operation, q, k, "causal")
            return _CAUSAL
    named = [name for name, value in (("prefix", prefix), ("window", window), ("intervals", intervals)) if value is not None]
    if len(named) > 1:
        refuse(operation, "one of prefix, window and intervals", " and ".join(named))
    if isinstance(mask, (torch.Tensor, np.ndarray)):
        if named:
            refuse(operation, f"no mask beside {named[0]}", "a boolean one")
        parts = {"kind": "boolean", "visible": _visible(operation, q, k, mask)}
    elif not (mask is None or (isinstance(mask, str) and mask in ("full", "causal"))):
        refuse(
            operation, "a mask of 'full', 'causal' or a boolean tensor", repr(mask) if isinstance(mask, str) else _type_name(mask)
        )
    elif prefix is not None:
        parts = {"kind": "prefix", "bounds": numbers(operation, "prefix", [prefix] if isinstance(prefix, _WHOLE) else prefix)}
    elif window is not None:
        pair = (window, 0) if isinstance(window, _WHOLE) else _pair(operation, "window", window)
        left, right = (whole(operation, "a width of the window", number) for number in pair)
        parts = {"kind": "window", "left": left, "right": 0 if mask == "causal" else right}
    elif intervals is not None:
        if mask == "causal":
            refuse(operation, "no mask beside intervals, which say by themselves what a query sees", "'causal'")
        parts = {"kind": "intervals", "bounds": _interval_bounds(operation, intervals, q.shape[1])}
    else:
        parts = {"kind": mask or "full"}
    if parts["kind"] in ("causal", "prefix", "window"):
        _check_square(operation, q, k, parts["kind"])
    if key_lengths is not None:
        parts["key_lengths"] = numbers(operation, "key_lengths", key_lengths)
        if len(parts["key_lengths"]) != q.shape[0]:
            refuse(operation, f"key_lengths [{q.shape[0]}]", f"{list(parts['key_lengths'].shape)}")
    if segments is not None:
        _check_square(operation, q, k, "segmented")
        parts["segments"] = _segments(operation, segments)
    return Mask(**parts)


def _check_square(operation, q, k, kind):
    if q.shape[1] != k.shape[1]:
        refuse(operation, f"as many queries as keys with a {kind} mask", f"{q.shape[1]} and {k.shape[1]}")


def check_tensor(operation: str, name: str, value, dimensions: int) -> torch.Tensor:
    if (
        isinstance(value, torch.Tensor)
        and value.is_cpu
        and value.layout is torch.strided
        and not value.is_nested
        and value.dim() == dimensions
        and value.dtype in _DTYPES
    ):
        return value
    if not isinstance(value, torch.Tensor):
        refuse_type(operation, f"{name} as a torch.Tensor", _type_name(value))
    if value.device.type not in ("cpu", "meta"):
        refuse(operation, f"{name} on the CPU", f"a tensor on {value.device}")
    if value.layout != torch.strided or value.is_nested:
        refuse(operation, f"{name} as a dense tensor", "a nested one" if value.is_nested else str(value.layout))
    if value.dim() != dimensions:
        refuse(operation, f"{name} of {dimensions} dimensions", f"{list(value.shape)}")
    if value.dtype not in _DTYPES:
        instead = " (.bfloat16() converts)" if value.dtype == torch.float16 else ""
        refuse_type(operation, f"{name} of float32, bfloat16 or float64{instead}", str(value.dtype))
    return value


_CAST = (torch.float32, torch.bfloat16, torch.float16)


def autocast(*tensors):
    """The tensors as torch.autocast of the CPU wants them: of bfloat16, and of float32 where it is to float16."""
    if not torch.is_autocast_enabled("cpu"):
        return tensors
    dtype = torch.bfloat16 if torch.get_autocast_dtype("cpu") == torch.bfloat16 else torch.float32
    return [x.to(dtype) if isinstance(x, torch.Tensor) and x.dtype in _CAST else x for x in tensors]


def sequences(operation: str, q, k, v, layout: str):
    """q, k and v as [batch, length, heads, dim], of one element type: under autocast its own."""
    if layout not in ("bnhd", "bhnd"):
        refuse(operation, "layout 'bnhd' or 'bhnd'", repr(layout))
    same = k is q
    q, k, v = autocast(q, k, v)
    k = q if same else k
    for name, tensor in (("q", q), ("k", k), ("v", v)):
        check_tensor(operation, name, tensor, 4)
    if not q.dtype == k.dtype == v.dtype:
        refuse_type(operation, "q, k and v of one dtype", f"{q.dtype}, {k.dtype} and {v.dtype}")
    if not (q.is_cpu and k.is_cpu and v.is_cpu) and not q.device == k.device == v.device:
        refuse(operation, "q, k and v on one device, on cpu or on meta", f"{q.device}, {k.device} and {v.device}")
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


def float_rows(operation: str, name: str, value, shape, q) -> torch.Tensor:
    """A tensor of `shape` (None: any extent) beside `q`: on its device, and float64 where that is, otherwise float32."""
    if not isinstance(value, torch.Tensor):
        refuse_type(operation, f"{name} as a torch.Tensor", _type_name(value))
    if value.dim() != len(shape) or any(wanted is not None and wanted != found for wanted, found in zip(shape, value.shape)):
        wanted = ", ".join("any" if extent is None else str(extent) for extent in shape)
        refuse(operation, f"{name} [{wanted}]", f"{list(value.shape)}")
    if value.dtype not in _DTYPES:
        refuse_type(operation, f"{name} of float32", str(value.dtype))
    if value.device != q.device:
        refuse(operation, f"{name} on {q.device}, as q", f"a tensor on {value.device}")
    if value.layout != torch.strided:
        refuse(operation, f"{name} as a dense tensor", str(value.layout))
    value = value.to(torch.float64 if q.dtype == torch.float64 else torch.float32)
    return value if value.shape[-1] <= 1 or value.stride(-1) == 1 else value.contiguous()


def check_options(operation: str, **options) -> None:
    """Throws unless the options of an attention are numbers, and its names known ones."""
    for name, value in options.items():
        if name in NAMES:
            if name == "feature_map" and callable(value):
                refuse_type(
                    operation,
                    "the name of a feature_map (of a function apply it to q and k, and pass feature_map='identity')",
                    _type_name(value),
                )
            if not isinstance(value, str):
                refuse_type(operation, f"{name} as text", _type_name(value))
            if value not in NAMES[name]:
                refuse(operation, f"{name} of {', '.join(NAMES[name])}", repr(value))
        elif name in ("alpha", "epsilon", "scale"):
            if isinstance(value, bool) or not isinstance(value, (int, float, np.integer, np.floating)):
                refuse_type(operation, f"{name} as a number", _type_name(value))
        else:
            whole(operation, name, value, 0, _LARGEST_LAYER if name == "layer" else _LARGEST)


def default_features(head_dim: int) -> int:
    """F of a random feature map where none is given: E ln E, rounded up to a multiple of 16."""
    if head_dim < 1:
        refuse("feature map", "a head size of at least 1", str(head_dim))
    return 16 * max(1, math.ceil(head_dim * math.log(head_dim) / 16))
