"""What functions of the package accept, as what the C++ module takes."""

from __future__ import annotations

import contextlib
import operator
import os
import threading
from collections.abc import Iterator

import numpy as np

from . import _core

_of_thread = threading.local()

# Steps of float32 that the numbers of a column vary by at least.
_LEAST_LEVELS = 64


def context_of(context: _core.Context | None) -> _core.Context:
    """The given context, or one that the calling thread keeps, with a thread per processor."""
    if context is None:
        if not hasattr(_of_thread, "context"):
            _of_thread.context = _core.Context()
        return _of_thread.context
    if not isinstance(context, _core.Context):
        raise _core.ArgumentTypeError(f"[context] expected a linnet.Context, got {type(context).__name__}")
    return context


@contextlib.contextmanager
def context_for_callbacks(context: _core.Context | None) -> Iterator[_core.Context]:
    """The same for a call that runs Python functions: their calls without a context get another one."""
    found = context_of(context)
    if context is not None:
        yield found
        return
    del _of_thread.context
    try:
        yield found
    finally:
        _of_thread.context = found


_INTERFACES = ("__array__", "__array_interface__")


def is_array(value) -> bool:
    """Whether `array_of` takes it."""
    return isinstance(value, (np.ndarray, memoryview)) or any(hasattr(value, name) for name in (*_INTERFACES, "__dlpack__"))


def array_of(operation: str, name: str, value) -> np.ndarray:
    """A NumPy array: the value itself, or a view of what has Python's buffers, NumPy's or the DLPack interface."""
    if isinstance(value, np.ma.MaskedArray):
        raise _core.ArgumentTypeError(f"[{operation}] expected {name} without masked elements, got a masked array")
    if isinstance(value, np.ndarray):
        return value
    converts = isinstance(value, memoryview) or any(hasattr(value, interface) for interface in _INTERFACES)
    if converts or hasattr(value, "__dlpack__"):
        try:
            return np.asarray(value) if converts else np.from_dlpack(value)
        except Exception as error:
            raise _core.ArgumentTypeError(
                f"[{operation}] expected {name} as a NumPy array, got {type(value).__name__}: {error}"
            ) from error
    raise _core.ArgumentTypeError(f"[{operation}] expected {name} as a NumPy array, got {type(value).__name__}")


def with_rows(array: np.ndarray) -> np.ndarray:
    """The array itself where its last axis is contiguous, its elements aligned and of the machine's byte order, otherwise a
    copy."""
    item = array.itemsize
    fits = (
        array.dtype.isnative
        and array.flags.aligned
        and (array.ndim == 0 or array.shape[-1] <= 1 or array.strides[-1] == item)
        and all(stride % item == 0 for stride in array.strides)
    )
    return array if fits else np.array(array, dtype=array.dtype.newbyteorder("="), order="C")


def floats_of(operation: str, name: str, value, dtype) -> np.ndarray:
    """`dtype`, dense; numbers of other kinds are converted."""
    array = np.asarray(value) if isinstance(value, (list, tuple, int, float)) else array_of(operation, name, value)
    if array.dtype.kind not in "fiu":
        raise _core.ArgumentTypeError(f"[{operation}] expected {name} as numbers, got {array.dtype}")
    with np.errstate(over="ignore", invalid="ignore"):  # what float32 cannot hold is refused as infinite
        return np.ascontiguousarray(array, dtype=dtype)


def singles_of(operation: str, name: str, value) -> np.ndarray:
    """Numbers of the last axis' columns as float32, dense. Columns that vary by few of its steps are refused."""
    array = np.asarray(value) if isinstance(value, (list, tuple, int, float)) else array_of(operation, name, value)
    single = floats_of(operation, name, array, np.float32)
    exact = array.dtype == np.float32 or array.itemsize < 4
    for column in range(0 if exact or array.ndim == 0 or array.size == 0 else array.shape[-1]):
        numbers, rounded = (part[..., column].astype(np.float64).ravel() for part in (array, single))
        known = np.isfinite(rounded)
        if not known.any():
            continue
        numbers, rounding = numbers[known], np.abs(numbers[known] - rounded[known]).max()
        least, most = numbers.min(), numbers.max()
        if most > least and rounding * _LEAST_LEVELS > most - least:
            raise _core.UsageError(
                f"[{operation}] expected {name} that float32 can hold, got {least} ... {most} in column {column}, which it rounds "
                f"by up to {rounding:.3g}; subtract a constant from them"
            )
    return single


def integers_of(operation: str, name: str, value, dtype) -> np.ndarray:
    """Whole numbers as `dtype`, dense. Numbers beyond its range are refused."""
    if isinstance(value, (list, tuple, range, int)):
        try:
            array = np.asarray(value if not isinstance(value, range) else list(value))
        except (ValueError, OverflowError) as error:
            raise _core.UsageError(f"[{operation}] expected {name} as an array, got rows of several lengths") from error
        if array.size == 0:
            array = array.astype(np.int64)
    else:
        array = array_of(operation, name, value)
    if array.dtype.kind not in "iu":
        raise _core.ArgumentTypeError(f"[{operation}] expected {name} of whole numbers, got {array.dtype}")
    if array.dtype == dtype and array.flags.c_contiguous and array.flags.aligned:
        return array
    limits = np.iinfo(dtype)
    if array.size and (int(array.min()) < limits.min or int(array.max()) > limits.max):
        raise _core.UsageError(
            f"[{operation}] expected {name} in {limits.min} ... {limits.max}, got {int(array.min())} ... {int(array.max())}"
        )
    return np.ascontiguousarray(array, dtype=dtype)


def whole(operation: str, name: str, value) -> int:
    """A whole number of Python or NumPy that fits 64 bits."""
    try:
        number = operator.index(value)
    except TypeError as error:
        raise _core.ArgumentTypeError(
            f"[{operation}] expected {name} as a whole number, got {type(value).__name__}"
        ) from error
    if not -(2**63) <= number < 2**63:
        raise _core.UsageError(f"[{operation}] expected {name} of at most 64 bits, got {number}")
    return number


def seed_of(operation: str, value) -> int:
    """A seed: 0 ... 2^63 - 1."""
    seed = whole(operation, "seed", value)
    if seed < 0:
        raise _core.UsageError(f"[{operation}] expected a seed of at least 0, got {seed}")
    return seed


def real(operation: str, name: str, value) -> float:
    """A number of Python or NumPy."""
    if isinstance(value, (str, bytes)):
        raise _core.ArgumentTypeError(f"[{operation}] expected {name} as a number, got {type(value).__name__}")
    try:
        return float(value)
    except (TypeError, ValueError) as error:
        raise _core.ArgumentTypeError(
            f"[{operation}] expected {name} as a number, got {type(value).__name__}"
        ) from error


def wholes(operation: str, name: str, values) -> list[int]:
    """Whole numbers of a sequence."""
    try:
        return [whole(operation, name, value) for value in values]
    except TypeError as error:
        if isinstance(error, _core.Error):
            raise
        raise _core.ArgumentTypeError(
            f"[{operation}] expected a sequence of {name}s, got {type(values).__name__}"
        ) from error


def folder_of(operation: str, value) -> str:
    """A path as text."""
    try:
        path = os.fspath(value)
    except TypeError as error:
        raise _core.ArgumentTypeError(f"[{operation}] expected a path, got {type(value).__name__}") from error
    if not path:
        raise _core.UsageError(f"[{operation}] expected a path, got an empty text")
    path = os.fsdecode(path)
    try:
        path.encode("utf-8")
    except UnicodeEncodeError as error:
        raise _core.UsageError(f"[{operation}] expected a path in UTF-8, got {path!r}") from error
    if "\0" in path:
        raise _core.UsageError(f"[{operation}] expected a path without a NUL, got {path!r}")
    return path


def bytes_of(operation: str, text) -> bytes:
    """The bytes of a text: of str in UTF-8."""
    if isinstance(text, str):
        try:
            return text.encode("utf-8")
        except UnicodeEncodeError as error:
            raise _core.UsageError(f"[{operation}] expected text of whole characters, got half a surrogate pair") from error
    if not isinstance(text, (bytes, bytearray)):
        raise _core.ArgumentTypeError(f"[{operation}] expected text or bytes, got {type(text).__name__}")
    return bytes(text)


def threads_of(operation: str, value) -> int:
    """A number of threads."""
    threads = whole(operation, "threads", value)
    if not 0 <= threads <= 1024:
        raise _core.UsageError(f"[{operation}] expected threads in 0 ... 1024, got {threads}")
    return threads
