"""What sessions of tokens and of real numbers share."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from . import _core
from ._arguments import whole
from ._copies import not_copied

if TYPE_CHECKING:
    from ._model import Model

_Session: TypeAlias = _core.Session | _core.NumberSession


def core_of_model(operation: str, model: Model) -> _core.Model:
    """The C++ object of a linnet.Model."""
    from ._model import Model

    if not isinstance(model, Model):
        raise _core.ArgumentTypeError(f"[{operation}] expected a linnet.Model, got {type(model).__name__}")
    return model._core


@not_copied("session", "save and restore for the streams in another session")
class Streams:
    """Streams of one model, each at its own position. `linnet.Session` and `linnet.NumberSession` make them."""

    _core: _Session

    def __repr__(self) -> str:
        return f"<linnet.{type(self).__name__}: {self.streams} streams>"

    @property
    def streams(self) -> int:
        """Number of streams."""
        return self._core.streams

    def save(self, stream: int = 0) -> bytes:
        """The stream, with a checksum and the fingerprint of its model."""
        return self._core.save(whole("save", "stream", stream))

    def restore(self, stream: int, saved: bytes | bytearray | memoryview) -> None:
        """Makes a stream continue a saved one of the same model; one of tokens with its seed and sampling. Damaged bytes are
        refused, and the stream is then unchanged."""
        if not isinstance(saved, (bytes, bytearray, memoryview)):
            raise _core.ArgumentTypeError(f"[restore] expected bytes, got {type(saved).__name__}")
        self._core.restore(whole("restore", "stream", stream), bytes(saved))

    def position(self, stream: int = 0) -> int:
        """Steps given and drawn so far."""
        return self._core.position(whole("position", "stream", stream))

    @property
    def limit(self) -> int:
        """Most steps of a stream, which learned positions end."""
        return self._core.limit

    def can_continue(self, stream: int = 0) -> bool:
        """Whether the stream takes another step: `position` is below `limit`, no step has failed in it halfway, and it has a
        source where the model has an encoder."""
        return self._core.can_continue(whole("can_continue", "stream", stream))

    def state_bytes(self, stream: int = 0) -> int:
        """Bytes of the stream's state."""
        return self._core.state_bytes(whole("state_bytes", "stream", stream))
