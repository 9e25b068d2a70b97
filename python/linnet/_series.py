"""What follows a series of real numbers, and how probable it is."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from . import _core
from ._arguments import array_of, folder_of, real, seed_of, singles_of, threads_of, whole
from ._streams import core_of_model
from ._table import csv_of, is_frame
from ._types import Numbers, Path

if TYPE_CHECKING:
    from ._model import Model

# A CSV file, numbers [rows, columns], or a table with named columns, such as a DataFrame.
SeriesData: TypeAlias = Path | Numbers | Any


@dataclass(frozen=True)
class Forecast:
    """Draws of the rows behind the last one of a series, in the units of the data.

    Attributes
    ----------
    samples : float32 array [samples, steps, columns]
        A model of squared errors predicts means alone: a single sample of them.
    column_names : tuple of str [columns]
        Those of the model; "0", "1", ... where the model knows none.
    times : tuple of str [steps]
        Times of the rows, as in the file, those of a time zone in UTC; empty where it has none, or its last three rows have
        neither equal distances nor whole months between them.
    """

    samples: np.ndarray
    column_names: tuple[str, ...]
    times: tuple[str, ...]

    @property
    def mean(self) -> np.ndarray:
        """Of the samples, float64 [steps, columns]."""
        return self.samples.mean(axis=0, dtype=np.float64)

    @property
    def median(self) -> np.ndarray:
        """Of the samples, float64 [steps, columns]."""
        return np.median(self.samples.astype(np.float64), axis=0)

    def quantile(self, shares: float | Sequence[float]) -> np.ndarray:
        """The values below which these shares of the samples lie, float64 [steps, columns], or [shares, steps, columns] for
        several. Raises linnet.UsageError for shares outside 0 ... 1, and for a model that predicts means alone."""
        if len(self.samples) == 1:
            raise _core.UsageError("[forecast] expected several samples of a model of densities for quantiles, got one")
        wanted = np.asarray(shares, np.float64)
        if not np.all((wanted >= 0) & (wanted <= 1)):
            raise _core.UsageError(f"[forecast] expected shares in 0 ... 1, got {shares}")
        return np.quantile(self.samples.astype(np.float64), wanted, axis=0)


@dataclass(frozen=True)
class Anomaly:
    """A stretch of rows whose scores are above a threshold.

    Attributes
    ----------
    first, last : int
        Rows.
    highest : float
        The highest score of a row.
    column : str
        The column whose scores lie furthest above their usual mean.
    first_time, last_time : str
        Of the rows; empty for a series without times.
    """

    first: int
    last: int
    highest: float
    column: str
    first_time: str
    last_time: str


@dataclass(frozen=True)
class Anomalies:
    """What `SeriesScores.anomalies` finds.

    Attributes
    ----------
    scores : float64 array [rows]
        Means of the known scores over the window, NaN where none is known. Scores of rows without context are left out of the means,
        and stay as they are.
    threshold : float
    found : list of linnet.Anomaly
    """

    scores: np.ndarray
    threshold: float
    found: list[Anomaly]


class SeriesScores:
    """How improbable the rows of a series are: -log densities in nats, each given the rows before its own. `linnet.score` makes
    them."""

    def __init__(self, series: _core.Series, core: _core.SeriesScores):
        self._series, self._core = series, core
        self.column_names: tuple[str, ...] = tuple(series.column_names)
        """[columns]."""
        self.numbers: np.ndarray = core.numbers.reshape(-1, len(self.column_names))
        """float64 [rows, columns]; NaN of numbers that are not known."""
        self.rows: np.ndarray = core.rows
        """float64 [rows], the sums over the known numbers, which are low where some are not known; NaN where none is."""
        self.has_context: np.ndarray = core.has_context.astype(bool)
        """[rows], whether the model has read anything before a row. A score that nothing stands behind says nothing."""
        self.state_bytes: int = core.state_bytes
        """Bytes of the states of the model's streams."""

    def __repr__(self) -> str:
        return f"<linnet.SeriesScores: {len(self.rows)} rows of {len(self.column_names)} columns>"

    def anomalies(
        self,
        *,
        window: int = 1,
        threshold: float | None = None,
        quantile: float = 0.9999,
        calibrate: int = 0,
        gap: int = 50,
    ) -> Anomalies:
        """Stretches of rows whose scores are above a threshold, as ``linnet score`` finds them.

        Parameters
        ----------
        window : int
            Scores are means over so many last rows.
        threshold : float, optional
            In nats. Without it the value that the share `quantile` of the first `calibrate` rows (0: of all rows) lies below.
        quantile : float
        calibrate : int
        gap : int
            Most rows between two rows of one anomaly.

        Raises
        ------
        linnet.UsageError
            For values outside their range, and where no calibrating row has a context.
        """
        scores, found_threshold, found = self._core.anomalies(
            whole("score", "window", window),
            np.nan if threshold is None else real("score", "threshold", threshold),
            real("score", "quantile", quantile),
            whole("score", "calibrate", calibrate),
            whole("score", "gap", gap),
        )
        rows = [
            Anomaly(first, last, highest, self.column_names[column], self._series.time(first), self._series.time(last))
            for first, last, highest, column in found
        ]
        return Anomalies(scores, found_threshold, rows)


def _series_of(operation: str, model: Model, data: SeriesData, missing: str) -> _core.Series:
    core = core_of_model(operation, model)
    if missing not in ("", "refuse", "forward-fill"):
        raise _core.UsageError(f"[{operation}] expected missing among refuse, forward-fill, got {missing!r}")
    if isinstance(data, (str, os.PathLike)):
        return _core.Series.read(core, folder_of(operation, data), missing)
    if is_frame(data):
        return _core.Series.parse(core, csv_of(operation, data), missing)
    if missing:
        raise _core.UsageError(f"[{operation}] expected missing for a file or a DataFrame, got it for an array, where NaN is not known")
    if not isinstance(data, (list, tuple)):
        data = array_of(operation, "data", data)
    return _core.Series.of(core, singles_of(operation, "data", data))


def forecast(
    model: Model,
    data: SeriesData,
    steps: int = 24,
    *,
    samples: int = 200,
    context: int = 0,
    seed: int = 0,
    temperature: float = 1.0,
    missing: str = "",
    threads: int = 0,
) -> Forecast:
    """Draws of how a series may go on after its last row; of a model of squared errors the means.

    Parameters
    ----------
    model : linnet.Model
        One of the next numbers of a series.
    data : path, array [rows, columns] or DataFrame
        The series, in the units of the training data. The columns of a CSV file and of a DataFrame are found by their names,
        where the model knows names (`Model.column_names`), those of an array are in the order of the training. The times of a
        DataFrame are a column of dates or its index. NaN in an array stands for a number that is not known.
    steps : int
        Rows to forecast, 1 ... 16,777,216.
    samples : int
        Draws, 1 ... 65,536.
    context : int
        Last rows that the model reads; 0 for as many as in a training example.
    seed : int
        Sample i is that of the seed + i.
    temperature : float
        The scales of the densities are multiplied by it.
    missing : str
        What to do with empty cells of a file or a DataFrame, "refuse" or "forward-fill"; "" as in training.
    threads : int
        0 stands for one per processor.

    Raises
    ------
    linnet.UsageError
        For a model that predicts no next numbers of a series, other columns than its own, and values outside their range.
    linnet.Error
        For files that cannot be read, and predictions that are not finite.
    """
    series = _series_of("forecast", model, data, missing)
    steps = whole("forecast", "steps", steps)
    drawn = series.forecast(
        steps,
        whole("forecast", "samples", samples),
        whole("forecast", "context", context),
        seed_of("forecast", seed),
        real("forecast", "temperature", temperature),
        threads_of("forecast", threads),
    )
    columns = tuple(series.column_names)
    times = tuple(series.time(series.rows + step) for step in range(steps)) if series.time(series.rows) else ()
    return Forecast(drawn.reshape(-1, steps, len(columns)), columns, times)


def score(model: Model, data: SeriesData, *, missing: str = "", threads: int = 0) -> SeriesScores:
    """How improbable every row of a series is, read as a stream; its method `anomalies` finds stretches of high scores.

    A model of squared errors scores by normal densities of one deviation of the training data.

    Parameters
    ----------
    model, data, missing, threads
        As in `linnet.forecast`.

    Raises
    ------
    linnet.UsageError
        As `linnet.forecast`.
    linnet.Error
        For files that cannot be read, and for a row whose score is not finite.
    """
    series = _series_of("score", model, data, missing)
    return SeriesScores(series, series.score(threads_of("score", threads)))
