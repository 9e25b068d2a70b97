"""Series in memory, as the contents of CSV files, which are read by the same rules."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from ._arguments import floats_of, is_array

# Rows of a series: an array [rows, columns], or a DataFrame.
Table: TypeAlias = Any


def is_frame(data: Any) -> bool:
    """Whether this is a table with named columns, as those of pandas."""
    return all(hasattr(data, name) for name in ("iloc", "columns", "to_csv"))


def is_table(data: Any) -> bool:
    """Whether this has rows and columns of numbers."""
    return is_array(data) and getattr(data, "ndim", 0) == 2


def _holds_times(values: Any) -> bool:
    """Whether these are dates with times of day: of a time zone, too, or periods."""
    return getattr(values.dtype, "kind", "") == "M" or hasattr(values, "tz") or hasattr(values.dtype, "freq")


def csv_of(operation: str, data: Table) -> str:
    """The contents of a CSV file with these rows. NaN is a missing cell; times are a column of dates, or the index of a frame."""
    if is_frame(data):
        # The first column is the one whose dates are times.
        times = [i for i in range(data.shape[1]) if _holds_times(data.iloc[:, i])]
        if len(times) == 1:
            data = data.iloc[:, [*times, *(i for i in range(data.shape[1]) if i not in times)]]
        has_times = not times and _holds_times(data.index)
        label = "time" if has_times and data.index.name is None else None
        return data.to_csv(index=has_times, index_label=label)
    numbers = floats_of(operation, "data", data, np.float64)
    lines = [",".join(f"column {column}" for column in range(numbers.shape[1]))]
    lines += [",".join("" if number != number else repr(number) for number in row) for row in numbers.tolist()]
    return "\n".join(lines) + "\n"
