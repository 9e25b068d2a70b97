"""Examples for training and evaluation."""

from __future__ import annotations

import numpy as np

from . import _core
from ._arguments import array_of, folder_of, integers_of, whole, with_rows


class Dataset:
    """Examples of one length: NumPy arrays, or files. Immutable.

    Parameters
    ----------
    tokens : array [examples, length] of whole numbers
        int32 arrays whose last axis is contiguous are not copied and must not change.
    labels : sequence [examples], optional
        Classes, 0 ... classes - 1.
    lengths : sequence [examples], optional
        Tokens of each example, 1 ... length; the rest of its row is padding.
    vocabulary : int, optional
        Tokens are 0 ... vocabulary - 1; the largest token plus 1 without it.
    classes : int, optional
        The largest label plus 1 without it.
    """

    def __init__(self, tokens, labels=None, lengths=None, *, vocabulary: int | None = None, classes: int | None = None):
        self._core = _from_arrays(tokens, labels, lengths, vocabulary, classes, (0, 0, 1))

    @classmethod
    def _of(cls, core) -> Dataset:
        made = cls.__new__(cls)
        made._core = core
        return made

    @classmethod
    def images(cls, pixels, labels=None, *, levels: int = 256, classes: int | None = None) -> Dataset:
        """Pictures as examples, pixel by pixel.

        Parameters
        ----------
        pixels : uint8 array [examples, height, width] or [examples, height, width, 3]
        labels : sequence [examples], optional
        levels : int
            The pixels are quantised to so many levels, 2 ... 256.
        classes : int, optional
        """
        array = array_of("dataset", "pixels", pixels)
        if array.dtype != np.uint8:
            raise _core.ArgumentTypeError(f"[dataset] expected pixels of uint8, got {array.dtype}")
        if array.ndim not in (3, 4) or (array.ndim == 4 and array.shape[3] not in (1, 3)):
            raise _core.UsageError(
                f"[dataset] expected pixels [examples, height, width] or [examples, height, width, 3], got {list(array.shape)}"
            )
        levels = whole("dataset", "levels", levels)
        if not 2 <= levels <= 256:
            raise _core.UsageError(f"[dataset] expected levels in 2 ... 256, got {levels}")
        table = np.array([_core.token_of_pixel(pixel, levels) for pixel in range(256)], np.int32)
        shape = (*array.shape[1:3], 1 if array.ndim == 3 else array.shape[3])
        tokens = table[array].reshape(len(array), int(np.prod(shape)))
        return cls._of(_from_arrays(tokens, labels, None, levels, classes, shape))

    @classmethod
    def text(cls, text, length: int) -> Dataset:
        """Every window of `length` bytes of a text (str in UTF-8, or bytes) as an example. The windows share their memory."""
        length = whole("dataset", "length", length)
        if isinstance(text, str):
            text = text.encode("utf-8")
        if not isinstance(text, (bytes, bytearray)):
            raise _core.ArgumentTypeError(f"[dataset] expected text or bytes, got {type(text).__name__}")
        if not 1 <= length <= len(text):
            raise _core.UsageError(f"[dataset] expected a length in 1 ... {len(text)}, the bytes of the text, got {length}")
        tokens = np.frombuffer(text, np.uint8).astype(np.int32)
        return cls._of(_from_arrays(np.lib.stride_tricks.sliding_window_view(tokens, length), None, None, 256, None, (0, 0, 1)))

    @classmethod
    def open(cls, source, model, kind: str = "") -> tuple[Dataset, Dataset]:
        """The training and the validation examples of files, in the form that a model takes.

        Parameters
        ----------
        source : path
            A folder of MNIST's, CIFAR-10's or PNG files, a file of text, FASTA or tokens, or "digits" or "copy".
        model : linnet.Model
            Decides length, picture size and levels.
        kind : str
            The kind of data where the name does not tell: digits, mnist, cifar10, images, text, bytes, copy, fasta, tokens,
            lines, pairs, reverse, series, sound.
        """
        from ._model import Model

        if not isinstance(model, Model):
            raise _core.ArgumentTypeError(f"[dataset] expected a linnet.Model, got {type(model).__name__}")
        training, validation = _core.Dataset.open_for_model(model._core, folder_of("dataset", source), str(kind))
        return cls._of(training), cls._of(validation)

    def __len__(self) -> int:
        return len(self._core)

    def __repr__(self) -> str:
        return f"<linnet.Dataset: {len(self)} examples of {self.length} tokens>"

    def __getitem__(self, index: int) -> np.ndarray:
        """The tokens of an example, int32 [length]; padding is -1."""
        return self._example(index)[0]

    def _example(self, index):
        index = whole("dataset", "index", index)
        return self._core.example(index + len(self) if index < 0 else index)

    def label(self, index: int) -> int | None:
        """The class of an example, None for data without labels."""
        label = self._example(index)[2]
        return None if label < 0 else label

    @property
    def length(self) -> int:
        """Tokens per example."""
        return self._core.length

    @property
    def vocabulary(self) -> int:
        """Tokens are 0 ... vocabulary - 1."""
        return self._core.vocabulary

    @property
    def classes(self) -> int:
        """Labels are 0 ... classes - 1; 0 for data without labels."""
        return self._core.classes


def _from_arrays(tokens, labels, lengths, vocabulary, classes, image):
    array = tokens if isinstance(tokens, np.ndarray) else integers_of("dataset", "tokens", tokens, np.int32)
    if array.dtype.kind not in "iu" or array.dtype != np.int32:
        array = integers_of("dataset", "tokens", array, np.int32)
    if array.ndim != 2 or array.size == 0:
        raise _core.UsageError(f"[dataset] expected tokens [examples, length], neither of them 0, got {list(array.shape)}")
    array = with_rows(array)
    if labels is not None:
        labels = integers_of("dataset", "labels", labels, np.int64).reshape(-1)
    if lengths is not None:
        lengths = integers_of("dataset", "lengths", lengths, np.int64).reshape(-1)
    if vocabulary is None:
        vocabulary = int(array.max()) + 1
    if classes is None:
        classes = int(labels.max()) + 1 if labels is not None and labels.size else 0
    return _core.Dataset.from_arrays(
        array, labels, lengths, whole("dataset", "vocabulary", vocabulary), whole("dataset", "classes", classes), *image
    )


def dataset_of(operation: str, data) -> Dataset:
    """A data set: itself, or one of an array of tokens or of (tokens, labels)."""
    if isinstance(data, Dataset):
        return data
    if isinstance(data, tuple) and len(data) == 2:
        return Dataset(*data)
    if isinstance(data, (np.ndarray, list)):
        return Dataset(data)
    raise _core.ArgumentTypeError(
        f"[{operation}] expected a linnet.Dataset, an array of tokens, (tokens, labels) or a path, got {type(data).__name__}"
    )
