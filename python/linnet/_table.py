"""Series in memory, as the contents of CSV files, which are read by the same rules."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from . import _core
from ._arguments import floats_of, is_array

# Rows of a series: an array [rows, columns], or a DataFrame.
Table: TypeAlias = Any


_ROWS_TOGETHER = 1 << 14


def is_frame(data: Any) -> bool:
    """Whether this is a table with named columns, as those of pandas."""
    return all(hasattr(data, name) for name in ("iloc", "columns", "to_csv"))


def in_order(operation: str, values: Any, names: tuple[str, ...]) -> Any:
    """A frame with the columns of these names alone, in their order. Other values, and those for a model without names, as they are."""
    if not names or not is_frame(values):
        return values
    own = {str(name): i for i, name in enumerate(values.columns)}
    missing = [name for name in names if name not in own]
    if missing:
        raise _core.UsageError(f"[{operation}] expected the columns {', '.join(names)}, as the model has, got none called {missing[0]}")
    return values.iloc[:, [own[name] for name in names]]


def is_table(data: Any) -> bool:
    """Whether this has rows and columns of numbers."""
    return is_array(data) and getattr(data, "ndim", 0) == 2


def _holds_times(values: Any) -> bool:
    """Whether these are dates, of a time zone, too, or periods."""
    return getattr(values.dtype, "kind", "") == "M" or hasattr(values, "tz") or hasattr(values.dtype, "freq")


def csv_of(operation: str, data: Table, names: tuple[str, ...] = ()) -> str:
    """The contents of a CSV file with these rows. NaN is a missing cell; times are a column of dates, or the index of a frame. An
    array of as many columns as there are `names` has these."""
    if is_frame(data):
        return _csv_of_frame(data)
    numbers = floats_of(operation, "data", data, np.float64)
    if len(names) != numbers.shape[1]:
        names = tuple(f"column {column}" for column in range(numbers.shape[1]))
    parts = [",".join('"' + name.replace('"', '""') + '"' for name in names) + "\n"]
    for first in range(0, len(numbers), _ROWS_TOGETHER):
        rows = numbers[first : first + _ROWS_TOGETHER].tolist()
        parts.append("".join(",".join("" if number != number else repr(number) for number in row) + "\n" for row in rows))
    return "".join(parts)


def _csv_of_frame(data: Table) -> str:
    """Its index is written where it holds times. A column of times comes first, where it is read as such."""
    data = data.copy(deep=False)
    data.columns = [name if isinstance(name, str) else f"column {name}" for name in data.columns]
    for name in [name for name in data.columns if getattr(getattr(data[name], "dtype", None), "kind", "") == "b"]:
        data[name] = data[name].astype(int if data[name].dtype == bool else "Int64")  # which also has missing values
    times = [i for i in range(data.shape[1]) if _holds_times(data.iloc[:, i])]
    for i in times:
        if hasattr(data.iloc[:, i].dtype, "freq"):
            data[data.columns[i]] = data.iloc[:, i].dt.to_timestamp()
    if len(times) == 1:
        data = data.iloc[:, [*times, *(i for i in range(data.shape[1]) if i not in times)]]
    if times or not _holds_times(data.index):
        return data.to_csv(index=False)
    if hasattr(data.index.dtype, "freq"):
        data.index = data.index.to_timestamp()
    label = data.index.name if data.index.name is not None else next(name for name in ("time", "index", "") if name not in data.columns)
    return data.to_csv(index_label=label)
