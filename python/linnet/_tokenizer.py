"""Tokens of text."""

from __future__ import annotations

import numpy as np

from . import _core
from ._arguments import bytes_of, folder_of, integers_of
from ._copies import ITSELF, not_copied
from ._types import Integers, Path


@not_copied("tokenizer", ITSELF)
class Tokenizer:
    """Makes tokens of text, and text of tokens: those of a SentencePiece model, or bytes. Immutable. `Model.tokenizer` is that of
    a model.

    Parameters
    ----------
    path : path
        A file with a SentencePiece model, such as ``linnet data tokenizer`` writes.

    Raises
    ------
    linnet.Error
        For a file that cannot be read or holds something else.
    linnet.UsageError
        Where Linnet was built without SentencePiece.
    """

    def __init__(self, path: Path):
        self._core = _core.Tokenizer.open(folder_of("tokenizer", path))

    @classmethod
    def _of(cls, model: _core.Model) -> Tokenizer:
        """That of a model of the C++ module."""
        made = cls.__new__(cls)
        made._core = _core.Tokenizer.of_model(model)
        return made

    def __repr__(self) -> str:
        return f"<linnet.Tokenizer: {self.vocabulary} tokens>"

    @property
    def vocabulary(self) -> int:
        """Tokens are 0 ... vocabulary - 1."""
        return self._core.vocabulary

    @property
    def separator(self) -> int:
        """In a model of pairs the token after a source, where the model has no encoder; otherwise -1. It has no text."""
        return self._core.separator

    @property
    def end(self) -> int:
        """In a model of pairs the token after a target, where an answer ends; otherwise -1. It has no text."""
        return self._core.end

    def encode(self, text: str | bytes) -> np.ndarray:
        """The tokens of a text (str, or bytes of UTF-8), int32 [n]."""
        return self._core.encode(bytes_of("tokenizer", text))

    def decode(self, tokens: Integers) -> str:
        """The text of tokens [n]. Bytes of a character that is not whole become U+FFFD."""
        return _text_of(self._core.decode(_tokens_of(tokens)))


@not_copied("text", "linnet.TextStream(tokenizer, stream.context()) for another stream")
class TextStream:
    """The text of tokens that come one by one, in whole characters: what `add` and at the end `finish` return is what
    `Tokenizer.decode` gives for all tokens together. Takes constant time per token and constant memory.

    Parameters
    ----------
    tokenizer : linnet.Tokenizer
    before : array of tokens [n], optional
        The text goes on behind these, a prompt or the `context` of another stream. Their own text is not returned, but for a
        character at their end that is not whole yet.
    """

    def __init__(self, tokenizer: Tokenizer, before: Integers = ()):
        if not isinstance(tokenizer, Tokenizer):
            raise _core.ArgumentTypeError(f"[text] expected a linnet.Tokenizer, got {type(tokenizer).__name__}")
        self._core = _core.TextStream(tokenizer._core, _tokens_of(before))
        self._tokenizer = tokenizer

    def __repr__(self) -> str:
        return f"<linnet.TextStream of {self._tokenizer!r}>"

    def add(self, token: int) -> str:
        """What the token adds: the text so far that has not been returned, without a character at its end of which bytes may
        follow."""
        return _text_of(self._core.add(int(_tokens_of([token])[0])))

    def finish(self) -> str:
        """The rest: bytes of a character that is not whole, as U+FFFD."""
        return _text_of(self._core.finish())

    def context(self) -> np.ndarray:
        """A few tokens, int32 [n], behind which another stream goes on exactly as this one."""
        return self._core.context()


def _tokens_of(tokens) -> np.ndarray:
    array = integers_of("tokenizer", "tokens", tokens, np.int32)
    if array.ndim != 1:
        raise _core.UsageError(f"[tokenizer] expected tokens [n], got {list(array.shape)}")
    return array


def _text_of(text: bytes) -> str:
    return text.decode("utf-8", errors="replace")
