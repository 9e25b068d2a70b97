"""Objects that are neither copied nor pickled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

from . import _core

_Kind = TypeVar("_Kind", bound=type[Any])


def not_copied(operation: str, instead: str) -> Callable[[_Kind], _Kind]:
    """Makes copy.copy, copy.deepcopy and pickle refuse the objects of a class and say what does it instead. A decorator."""

    def refuse(self: object) -> NoReturn:
        raise _core.ArgumentTypeError(f"[{operation}] expected {instead}, got a request to copy or pickle")

    def change(kind: _Kind) -> _Kind:
        setattr(kind, "__reduce__", refuse)
        return kind

    return change


ITSELF = "the object itself, which does not change"

for _kind, _operation in ((_core.Mask, "mask"), (_core.FeatureMap, "feature map"), (_core.Similarity, "similarity")):
    not_copied(_operation, ITSELF)(_kind)
not_copied("context", "a new linnet.Context")(_core.Context)
