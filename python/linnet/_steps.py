"""Steps of several fields and of real numbers, as what the C++ module takes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from . import _core
from ._arguments import floats_of, integers_of


class Steps(NamedTuple):
    tokens: np.ndarray | None
    """[batch, length, fields], int32."""
    values: np.ndarray | None
    """[batch, length, columns], float32."""
    batch: int
    length: int
    batched: bool
    """Whether they came with a batch."""

    def arguments(self, key_lengths):
        """What the module's functions take."""
        flat = [None if array is None else np.ascontiguousarray(array).reshape(-1) for array in (self.tokens, self.values)]
        return self.batch, self.length, *flat, key_lengths


def steps_of(operation: str, sizes, columns: int, tokens, values, key_lengths, least: int = 0) -> Steps:
    """The steps of a model with fields of these sizes, of which there may be none, and so many columns of real numbers. Tokens are at
    least `least`."""
    fields = len(sizes)
    for name, given, taken in (("tokens", tokens, fields), ("values", values, columns)):
        if (given is not None) != bool(taken):
            expected = f"{name} for this model" if taken else f"no {name} for this model"
            raise _core.UsageError(f"[{operation}] expected {expected}, got {'none' if given is None else 'some'}")
    batched, shape = False, (0, 0)
    if tokens is not None:
        tokens = integers_of(operation, "tokens", tokens, np.int32)
        if fields == 1:
            tokens = tokens[..., None]
        tokens, batched, shape = _in_batch(operation, "tokens", tokens, fields, fields > 1)
    if values is not None:
        values, batched_values, found = _in_batch(operation, "values", floats_of(operation, "values", values, np.float32), columns)
        if tokens is not None and found != shape:
            raise _core.UsageError(f"[{operation}] expected values of {list(shape)} steps, as there are tokens, got {list(found)}")
        batched, shape = batched_values, found
    if key_lengths is not None and len(key_lengths) == shape[0]:
        # Padding may be anything.
        padding = np.arange(shape[1]) >= key_lengths[:, None]
        tokens = None if tokens is None else np.where(padding[:, :, None], np.int32(0), tokens)
        values = None if values is None else np.where(padding[:, :, None], np.float32(0), values)
    if tokens is not None:
        for field, size in enumerate(sizes):
            found = tokens[:, :, field]
            if found.size and (found.min() < least or found.max() >= size):
                raise _core.UsageError(
                    f"[{operation}] expected tokens in {least} ... {size - 1}, got {found.min()} ... {found.max()}"
                )
    return Steps(tokens, values, *shape, batched)


def _in_batch(operation: str, name: str, array: np.ndarray, each: int, named: bool = True):
    found = list(array.shape if named else array.shape[:-1])
    if array.ndim not in (2, 3) or array.shape[-1] != each:
        last = f", {each}" if named else ""
        raise _core.UsageError(f"[{operation}] expected {name} [length{last}] or [batch, length{last}], got {found}")
    if 0 in array.shape[:-1]:
        raise _core.UsageError(f"[{operation}] expected a batch and a length of at least 1, got {found}")
    batched = array.ndim == 3
    array = array if batched else array[None]
    return array, batched, array.shape[:2]


def shifted(steps: Steps, first_input: np.ndarray, sizes) -> Steps:
    """The inputs of a model of the next step, whose first ones are of no step: the start or class tokens [batch] of the first
    field, those of the other fields, and numbers that are not known."""
    if steps.tokens is None:
        tokens = np.full((steps.batch, steps.length, 1), -1, np.int32)
    else:
        tokens = np.empty_like(steps.tokens)
        tokens[:, 1:] = steps.tokens[:, :-1]
        tokens[:, :1, 1:] = sizes[1:]
    tokens[:, :1, 0] = first_input[:, None]
    values = None
    if steps.values is not None:
        values = np.full_like(steps.values, np.nan)
        values[:, 1:] = steps.values[:, :-1]
    return steps._replace(tokens=tokens, values=values)
