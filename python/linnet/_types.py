"""Types of arguments that several functions take."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, SupportsFloat, SupportsIndex, TypeAlias, TypedDict

import numpy as np

from . import _core

if TYPE_CHECKING:
    from typing import overload as overload

    from ._attention import State
else:

    # That of typing keeps its functions until Python ends, and with them the C++ module, which nanobind reports as leaked.
    def overload(function):
        return function


class _WithArray(Protocol):
    def __array__(self) -> Any: ...


class _WithInterface(Protocol):
    @property
    def __array_interface__(self) -> Any: ...


class _WithDLPack(Protocol):
    def __dlpack__(self) -> Any: ...


# Arrays of NumPy, and of libraries that have NumPy's or the DLPack interface.
ArrayLike: TypeAlias = np.ndarray | _WithArray | _WithInterface | _WithDLPack

# Also numbers in lists, tuples and ranges of up to three axes.
Integers: TypeAlias = (
    ArrayLike | Sequence[SupportsIndex] | Sequence[Sequence[SupportsIndex]] | Sequence[Sequence[Sequence[SupportsIndex]]]
)
Numbers: TypeAlias = (
    ArrayLike | Sequence[SupportsFloat] | Sequence[Sequence[SupportsFloat]] | Sequence[Sequence[Sequence[SupportsFloat]]]
)

# Token ids, or text for models of text.
Tokens: TypeAlias = Integers | str | bytes

# The labels of a batch, or one for all of it.
Labels: TypeAlias = SupportsIndex | Integers

# The indices of streams or slots.
Indices: TypeAlias = Iterable[SupportsIndex]

Path: TypeAlias = str | os.PathLike[str]
Settings: TypeAlias = Mapping[str, Any]
Config: TypeAlias = Settings | Path

MaskLike: TypeAlias = _core.Mask | str | np.ndarray


class AttentionOptions(TypedDict, total=False):
    """The options of `linnet.Attention`."""

    family: str
    feature_map: str | _core.FeatureMap
    similarity: str | _core.Similarity
    normalise: str
    epsilon: float
    compensated: bool
    scale: float
    cache: str
    left: int
    right: int
    pattern: str
    stride: int
    summary: int
    buckets: int
    chunk: int
    rounds: int
    seed: int
    layer: int


class CallArguments(TypedDict, total=False):
    """What the call of a `linnet.Attention` takes beside q, k, v and what decides the kind of its result."""

    mask: MaskLike | None
    decay: Numbers | None
    state: State | None
    position: int
    key_projection: Numbers | None
    value_projection: Numbers | None
    layout: str
    context: _core.Context | None


class AttentionArguments(CallArguments, AttentionOptions, total=False):
    """Those of `linnet.attention`: both."""


class SessionOptions(TypedDict, total=False):
    """The options of `linnet.Session`; `linnet.NumberSession` has no cache."""

    capacity: int
    cache: bool
    threads: int


class GenerationOptions(TypedDict, total=False):
    """What `Model.generate` takes beside a count."""

    label: Labels | None
    source: Tokens | None
    prompt: Tokens | None
    length: int | None
    temperature: float
    top_k: int | None
    top_p: float
    seed: int
    streams: int
    cache: bool
    threads: int
    progress: Callable[[int, int], object] | None
