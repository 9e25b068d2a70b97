"""Examples for training and evaluation."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from . import _core
from ._arguments import array_of, bytes_of, folder_of, is_array, integers_of, singles_of, whole, with_rows
from ._configuration import assignments_of
from ._copies import ITSELF, not_copied
from ._table import Table, csv_of, is_table
from ._tokenizer import Tokenizer
from ._types import ArrayLike, Integers, Numbers, Path, Settings, overload

if TYPE_CHECKING:
    from ._model import Model


@not_copied("dataset", ITSELF)
class Dataset:
    """Examples of one length: NumPy arrays, or files. Immutable.

    Parameters
    ----------
    tokens : array [examples, steps] or [examples, steps, fields] of whole numbers, optional
        int32 arrays whose last axis is contiguous are not copied and must not change; nor are such arrays of float32 of `values` and
        `value_targets`, of bool of `counted` and of int32 of `source`.
    labels : sequence [examples], optional
        Classes, 0 ... classes - 1.
    lengths : sequence [examples], optional
        Steps of each example, 1 ... steps; the rest of its row is padding.
    values : array [examples, steps, columns] of numbers, optional
        Real numbers of every step, beside tokens or alone. NaN is a number that is not known.
    counted : bool array [examples, steps] or [examples, steps, fields], optional
        Which steps count in the loss, or which fields of them; all without it. The others are read, such as the prompt before an
        answer.
    value_targets : array [examples, steps, targets] of numbers, optional
        What is predicted in place of `values`; NaN does not count.
    paired : bool
        Whether `value_targets` are outputs, of the inputs up to and including the same step (models of the objective same-step).
        With False they are predicted from the steps before (next-token).
    source : array [examples, source steps] of whole numbers, optional
        What an encoder reads (models of model.encoder_layers).
    source_lengths : sequence [examples], optional
        Tokens of each source, 1 ... source steps; the rest of its row is padding.
    vocabulary : int or sequence [fields], optional
        Tokens of a field are 0 ... vocabulary - 1; the largest token plus 1 without it.
    classes : int, optional
        As many as class_names, or the largest label plus 1 without it.
    source_vocabulary : int, optional
        The largest token of the sources plus 1 without it.
    class_names : sequence [classes] of str, optional
        What a model that is trained on the examples calls its labels (`Model.class_names`).
    column_names : sequence [columns] of str, optional

    Raises
    ------
    linnet.UsageError
        For shapes that do not fit each other, no examples, tokens beyond the vocabulary, infinities, and columns of NaN alone.
    linnet.ArgumentTypeError
        For elements of another type, and masked arrays.
    """

    def __init__(
        self,
        tokens: Integers | None = None,
        labels: Integers | None = None,
        lengths: Integers | None = None,
        *,
        values: Numbers | None = None,
        counted: ArrayLike | None = None,
        value_targets: Numbers | None = None,
        paired: bool = True,
        source: Integers | None = None,
        source_lengths: Integers | None = None,
        vocabulary: int | list[int] | tuple[int, ...] | None = None,
        classes: int | None = None,
        source_vocabulary: int | None = None,
        class_names: Sequence[str] = (),
        column_names: Sequence[str] = (),
    ):
        self._core = _from_arrays(
            tokens,
            values,
            labels=labels,
            lengths=lengths,
            counted=counted,
            value_targets=value_targets,
            paired=paired,
            source=source,
            source_lengths=source_lengths,
            vocabulary=vocabulary,
            classes=classes,
            source_vocabulary=source_vocabulary,
            class_names=class_names,
            column_names=column_names,
        )
        self._opened = False  # whether the examples were read as a model reads files

    @classmethod
    def windows(
        cls,
        tokens: Integers | None = None,
        *,
        values: Numbers | None = None,
        value_targets: Numbers | None = None,
        length: int,
        vocabulary: int | list[int] | tuple[int, ...] | None = None,
    ) -> Dataset:
        """Every window of `length` steps of one long sequence as an example. The windows share their memory.

        Parameters
        ----------
        tokens : array [steps] or [steps, fields] of whole numbers, optional
        values : array [steps, columns] of numbers, optional
        value_targets : array [steps, targets] of numbers, optional
            The outputs of the inputs up to and including the same step, in place of `values`.
        length : int
            1 ... steps.
        vocabulary : as in `linnet.Dataset`
        """
        length = whole("dataset", "length", length)

        def windows_of(array: np.ndarray, name: str) -> np.ndarray:
            if not 1 <= length <= len(array):
                raise _core.UsageError(f"[dataset] expected a length in 1 ... {len(array)}, the steps of the {name}, got {length}")
            return np.lib.stride_tricks.sliding_window_view(array, length, axis=0).transpose(0, 2, 1)

        if tokens is not None:
            tokens = integers_of("dataset", "tokens", tokens, np.int32)
            if tokens.ndim not in (1, 2):
                raise _core.UsageError(f"[dataset] expected tokens [steps] or [steps, fields], got {list(tokens.shape)}")
            tokens = windows_of(tokens if tokens.ndim == 2 else tokens[:, None], "tokens")

        def windows_of_numbers(array: Numbers | None, name: str, columns: str) -> np.ndarray | None:
            if array is None:
                return None
            array = singles_of("dataset", name, array)
            if array.ndim != 2:
                raise _core.UsageError(f"[dataset] expected {name} [steps, {columns}], got {list(array.shape)}")
            return windows_of(array, name)

        values = windows_of_numbers(values, "values", "columns")
        value_targets = windows_of_numbers(value_targets, "value_targets", "targets")
        return cls._of(_from_arrays(tokens, values, value_targets=value_targets, vocabulary=vocabulary))

    @classmethod
    def _of(cls, core: _core.Dataset, opened: bool = False) -> Dataset:
        made = cls.__new__(cls)
        made._core, made._opened = core, opened
        return made

    @classmethod
    def images(
        cls, pixels: ArrayLike, labels: Integers | None = None, *, levels: int = 256, classes: int | None = None
    ) -> Dataset:
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
        return cls._of(_from_arrays(tokens, labels=labels, vocabulary=levels, classes=classes, image=shape))

    @classmethod
    def text(cls, text: str | bytes, length: int, tokenizer: Tokenizer | None = None) -> Dataset:
        """Every window of a text as an example. The windows share their memory.

        Parameters
        ----------
        text : str, or bytes of UTF-8
        length : int
            Tokens of a window, 1 ... those of the text.
        tokenizer : linnet.Tokenizer, optional
            What makes tokens of the text, `Model.tokenizer` for a model that is trained already; without it they are its bytes.
            A model that is trained on the examples keeps it.
        """
        length = whole("dataset", "length", length)
        text = bytes_of("dataset", text)
        if tokenizer is None:
            tokens, vocabulary, unit = np.frombuffer(text, np.uint8).astype(np.int32), 256, "bytes"
        elif isinstance(tokenizer, Tokenizer):
            tokens, vocabulary, unit = tokenizer.encode(text), tokenizer.vocabulary, "tokens"
        else:
            raise _core.ArgumentTypeError(f"[dataset] expected a linnet.Tokenizer, got {type(tokenizer).__name__}")
        if not 1 <= length <= len(tokens):
            raise _core.UsageError(f"[dataset] expected a length in 1 ... {len(tokens)}, the {unit} of the text, got {length}")
        windows = np.lib.stride_tricks.sliding_window_view(tokens, length)
        return cls._of(_from_arrays(windows, vocabulary=vocabulary, tokenizer=tokenizer))

    @overload
    @classmethod
    def open(
        cls, source: Path | Table, model: Model, kind: str = "", split: None = None, *, settings: Settings | None = None
    ) -> tuple[Dataset, Dataset]: ...
    @overload
    @classmethod
    def open(
        cls, source: Path | Table, model: Model, kind: str = "", *, split: str, settings: Settings | None = None
    ) -> Dataset: ...
    @overload
    @classmethod
    def open(
        cls, source: Path | Table, model: Model, kind: str, split: str, *, settings: Settings | None = None
    ) -> Dataset: ...
    @classmethod
    def open(
        cls, source: Path | Table, model: Model, kind: str = "", split: str | None = None, *, settings: Settings | None = None
    ) -> tuple[Dataset, Dataset] | Dataset:
        """The training and the validation examples of files, in the form that a model takes; with `split` one part alone.

        Parameters
        ----------
        source : path, DataFrame or array [rows, columns]
            A folder of MNIST's, CIFAR-10's, PNG or JPEG files, a file of text, FASTA, tokens, numbers (CSV) or sound, or "digits", "copy"
            or "reverse". A text becomes tokens through the model's tokenizer, where it has one. A DataFrame or an array
            [rows, columns] is a series, read as a CSV file with these rows: NaN is a missing cell, and times are a column of dates
            or the index of a frame.
        model : linnet.Model
            Decides length, picture size and levels.
        kind : str
            The kind of data where the name does not tell: digits, mnist, cifar10, images, text, bytes, copy, fasta, tokens,
            lines, pairs, reverse, series, sound.
        split : str, optional
            "training", "validation", or "test", which takes all of the files, also those that the model was trained with; with the
            setting data.split the part behind it.
        settings : mapping, optional
            How the files are read and divided, by the keys ``data.*`` of a configuration other than data.kind and data.path:
            ``{"data.columns": "load,wind", "data.split": "2017-01-01,2018-01-01"}``. `linnet.settings` lists them. Without them
            series, sound and files of tokens are read as those that the model was trained with, which its folder says: a series with
            the columns of these names, and where columns are apart by their statistics.

        Raises
        ------
        linnet.UsageError
            For files that are not the model's kind of data, and settings that the data do not have.
        linnet.Error
            For files that cannot be read.
        """
        from ._model import Model

        if not isinstance(model, Model):
            raise _core.ArgumentTypeError(f"[dataset] expected a linnet.Model, got {type(model).__name__}")
        if split is not None:
            if split not in ("training", "validation", "test"):
                raise _core.UsageError(f"[dataset] expected a split among training, validation, test, got {split!r}")
        contents = csv_of("dataset", source, model.column_names) if is_table(source) else None
        if contents is not None and kind not in ("", "series"):
            raise _core.UsageError(f"[dataset] expected the kind series for rows in memory, got {kind!r}")
        given = ("", "series") if contents is not None else (folder_of("dataset", source), str(kind))
        if split is not None:
            return cls._of(_core.Dataset.open_split(model._core, *given, split, assignments_of(settings), contents), True)
        training, validation = _core.Dataset.open_for_model(model._core, *given, assignments_of(settings), contents)
        return cls._of(training, True), cls._of(validation, True)

    def __len__(self) -> int:
        return len(self._core)

    def __repr__(self) -> str:
        one = len(self.fields) == 1 and self.columns == 0
        return f"<linnet.Dataset: {len(self)} examples of {self.length} {'tokens' if one else 'steps'}>"

    @overload
    def __getitem__(self, index: int) -> np.ndarray: ...
    @overload
    def __getitem__(self, index: slice) -> Dataset: ...
    def __getitem__(self, index: int | slice) -> np.ndarray | Dataset:
        """The tokens of an example, int32 [length], or [length, fields] for several fields; padding is -1. A slice selects examples."""
        if isinstance(index, slice):
            return self.select(range(*index.indices(len(self))))
        tokens = self._example(index)[0]
        return tokens if len(self.fields) == 1 else tokens.reshape(self.length, -1)

    def select(self, indices: Integers) -> Dataset:
        """Some of the examples, for a part of the data or another order.

        Parameters
        ----------
        indices : sequence of int, or [len(self)] of bool
            Which ones, in their order; an index may occur several times, and negative ones count from the end. Statistics, names and
            the tokenizer are those of the whole.

        Raises
        ------
        linnet.UsageError
            For no index, and for one that the data do not have.
        """
        return Dataset._of(self._core.select(self._indices_of("dataset", indices)), self._opened)

    def packed(self) -> Dataset:
        """The same examples, which are shorter than the length, with several whole ones in each: fewer steps of padding. For tokens
        without sources; for training, as ``data.packing`` is. An example takes them in the order of decreasing length, each into the
        fullest example with space for it.

        Raises
        ------
        linnet.UsageError
            For real numbers, sources, and examples that are packed already.
        """
        return Dataset._of(self._core.packed(), self._opened)

    def _indices_of(self, operation: str, indices: Any) -> np.ndarray:
        """int64, 0 ... len(self) - 1."""
        size = len(self)
        if isinstance(indices, (list, tuple)) and indices and all(isinstance(index, (bool, np.bool_)) for index in indices):
            indices = np.array(indices)
        if isinstance(indices, np.ndarray) and indices.dtype == np.bool_:
            if indices.shape != (size,):
                raise _core.UsageError(f"[{operation}] expected {size} truth values, got {list(indices.shape)}")
            indices = np.flatnonzero(indices)
        chosen = integers_of(operation, "indices", indices, np.int64).reshape(-1)
        if chosen.size and (chosen.min() < -size or chosen.max() >= size):
            raise _core.UsageError(
                f"[{operation}] expected indices in {-size} ... {size - 1}, got {chosen.min()} ... {chosen.max()}"
            )
        return np.where(chosen < 0, chosen + size, chosen)

    def values(self, index: int) -> np.ndarray:
        """The real numbers of an example, float32 [length, columns]; padding is NaN."""
        return self._example(index)[1].reshape(self.length, self.columns)

    def _example(self, index: int) -> tuple[np.ndarray, np.ndarray, int]:
        index = whole("dataset", "index", index)
        if index < -len(self):
            raise _core.UsageError(f"[dataset] expected an index in {-len(self)} ... {len(self) - 1}, got {index}")
        return self._core.example(index + len(self) if index < 0 else index)

    def label(self, index: int) -> int | None:
        """The class of an example, None for data without labels."""
        label = self._example(index)[2]
        return None if label < 0 else label

    @property
    def length(self) -> int:
        """Steps per example."""
        return self._core.length

    @property
    def vocabulary(self) -> int:
        """Tokens are 0 ... vocabulary - 1, with several fields those of the largest; 0 for steps without tokens."""
        return self._core.vocabulary

    @property
    def fields(self) -> tuple[int, ...]:
        """Numbers of values of the fields of a step."""
        return tuple(self._core.fields)

    @property
    def columns(self) -> int:
        """Real numbers per step."""
        return self._core.columns

    @property
    def targets(self) -> int:
        """Real numbers to predict per step."""
        return self._core.target_columns

    @property
    def column_names(self) -> tuple[str, ...]:
        """Names of the columns, where the data have them."""
        return tuple(self._core.column_names)

    @property
    def classes(self) -> int:
        """Labels are 0 ... classes - 1; 0 for data without labels."""
        return self._core.classes

    @property
    def class_names(self) -> tuple[str, ...]:
        """Names of the labels in their order, where the data have them."""
        return tuple(self._core.class_names)

    @property
    def source_length(self) -> int:
        """Tokens of the source of an example; 0 for examples of one sequence."""
        return self._core.source_length

    @property
    def source_vocabulary(self) -> int:
        """Tokens of a source are 0 ... source_vocabulary - 1."""
        return self._core.source_vocabulary


def _holds(array, dtype):
    """Whether it is an array of NumPy of that type. Such arrays are not copied where their last axis is contiguous, windows among them."""
    return isinstance(array, np.ndarray) and not isinstance(array, np.ma.MaskedArray) and array.dtype == dtype


def _tokens_of(name, array):
    """int32 with a contiguous last axis."""
    return with_rows(array if _holds(array, np.int32) else integers_of("dataset", name, array, np.int32))


def _numbers_of(name, array):
    """float32 with a contiguous last axis."""
    return with_rows(array if _holds(array, np.float32) else singles_of("dataset", name, array))


def _truths_of(name, array):
    """Truth values as uint8 with a contiguous last axis."""
    array = np.asarray(array) if isinstance(array, (list, tuple)) else array_of("dataset", name, array)
    if array.dtype != np.bool_:
        raise _core.ArgumentTypeError(f"[dataset] expected {name} of bool, got {array.dtype}")
    return with_rows(array).view(np.uint8)


def _whole_numbers_of(name, array):
    """int64 [examples]."""
    numbers = integers_of("dataset", name, array, np.int64).reshape(-1)
    if numbers.size == 0:
        raise _core.UsageError(f"[dataset] expected {name} for each example, got none")
    return numbers


def _size_of(name, size):
    """A number of values, 0 for one that the arrays decide."""
    if size is None:
        return 0
    size = whole("dataset", name, size)
    if size < 1:
        raise _core.UsageError(f"[dataset] expected {name} of at least 1, got {size}")
    return size


def _sizes_of(vocabulary, tokens):
    """The numbers of values of the fields; empty where the arrays decide."""
    if vocabulary is None:
        return []
    if tokens is None:
        raise _core.UsageError("[dataset] expected no vocabulary without tokens, got one")
    if isinstance(vocabulary, (list, tuple)):
        return [_size_of("vocabulary", size) for size in vocabulary]
    return [_size_of("vocabulary", vocabulary)] * (tokens.shape[2] if tokens.ndim == 3 else 1)


def _names_of(name, names):
    """Texts that are UTF-8."""
    texts = list(names) if isinstance(names, Iterable) and not isinstance(names, (str, bytes)) else [None]
    if not all(isinstance(text, str) for text in texts):
        raise _core.ArgumentTypeError(f"[dataset] expected {name} as a sequence of texts, got {names!r}")
    for text in texts:
        bytes_of("dataset", text)
    return texts


def _from_arrays(
    tokens: Any = None,
    values: Any = None,
    *,
    labels: Any = None,
    lengths: Any = None,
    counted: Any = None,
    value_targets: Any = None,
    paired: bool = True,
    source: Any = None,
    source_lengths: Any = None,
    vocabulary: int | list[int] | tuple[int, ...] | None = None,
    classes: int | None = None,
    source_vocabulary: int | None = None,
    image: tuple[int, int, int] = (0, 0, 1),
    tokenizer: Tokenizer | None = None,
    class_names: Sequence[str] = (),
    column_names: Sequence[str] = (),
) -> _core.Dataset:
    def of(convert, name, array):
        return None if array is None else convert(name, array)

    tokens = of(_tokens_of, "tokens", tokens)
    return _core.Dataset.from_arrays(
        tokens,
        of(_numbers_of, "values", values),
        of(_truths_of, "counted", counted),
        of(_numbers_of, "value_targets", value_targets),
        of(_tokens_of, "source", source),
        of(_whole_numbers_of, "lengths", lengths),
        of(_whole_numbers_of, "labels", labels),
        of(_whole_numbers_of, "source_lengths", source_lengths),
        bool(paired),
        _sizes_of(vocabulary, tokens),
        _size_of("classes", classes),
        _size_of("source_vocabulary", source_vocabulary),
        list(image),
        None if tokenizer is None else tokenizer._core,
        _names_of("class_names", class_names),
        _names_of("column_names", column_names),
    )


# What data sets are made of where a function takes data: tokens, real numbers, or (tokens, labels).
Data: TypeAlias = Dataset | np.ndarray | list[Any] | tuple[Any, Any]


def dataset_of(operation: str, data: Any, *, or_path: bool = False) -> Dataset:
    """A data set: itself, or one of an array of tokens or real numbers, or of (tokens, labels). `or_path`: the caller takes paths
    itself."""
    if isinstance(data, Dataset):
        return data
    if isinstance(data, tuple) and len(data) == 2:
        return Dataset(*data)
    if is_array(data):
        data = array_of(operation, "data", data)
        return Dataset(values=data) if data.dtype.kind == "f" else Dataset(data)
    if isinstance(data, list):
        return Dataset(data)
    kinds = "an array, (tokens, labels) or a path" if or_path else "an array or (tokens, labels)"
    raise _core.ArgumentTypeError(f"[{operation}] expected a linnet.Dataset, {kinds}, got {type(data).__name__}")
