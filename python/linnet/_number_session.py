"""Many streams of real numbers of one model, step by step."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from . import _core
from ._arguments import floats_of, real, seed_of, threads_of, whole, wholes
from ._densities import Densities
from ._streams import Streams, core_of_model
from ._types import Indices, Numbers

if TYPE_CHECKING:
    from ._model import Model


class NumberSession(Streams):
    """Streams of a model whose steps are real numbers alone: one of the next step forecasts, one of the same step filters.

    A stream's numbers do not depend on the streams beside it. Calls from several Python threads take turns; while one computes,
    other Python code runs.

    Parameters
    ----------
    model : linnet.Model
    streams : int
        Streams, all at their beginning, with label 0 where the model has classes.
    capacity : int
        Steps per stream to reserve memory for, in families whose memory grows (softmax).
    threads : int
        Threads of the session, the caller's included; 0 stands for one per processor.

    Raises
    ------
    linnet.UsageError
        For a model that has tokens in its steps, predicts no numbers, or whose steps see later ones.
    linnet.Error
        For a family without a recurrent form.
    """

    def __init__(self, model: Model, streams: int = 1, *, capacity: int = 0, threads: int = 0):
        core = core_of_model("number session", model)
        self.model = model
        self._core: _core.NumberSession = _core.NumberSession(
            core,
            whole("number session", "streams", streams),
            whole("number session", "capacity", capacity),
            threads_of("number session", threads),
        )

    @property
    def targets(self) -> int:
        """Numbers that are predicted for a step."""
        return self._core.targets

    def begin(self, stream: int = 0, label: int | None = None) -> None:
        """Starts a stream anew; `label` is its class, 0 without it where the model has classes."""
        self._core.begin(whole("begin", "stream", stream), self.model._label(label))

    def step(self, values: Numbers, streams: Indices | None = None) -> np.ndarray:
        """Takes the numbers of the next step of each of `streams` (all of them without it) and predicts.

        Parameters
        ----------
        values : array [streams, columns], or [columns] for a single stream
            NaN stands for a number that is not known.
        streams : sequence of int, optional

        Returns
        -------
        array [streams, targets], float32
            Means: of the numbers of the steps that follow in a model of the next step, of the output at this step in one of the
            same step.

        Raises
        ------
        linnet.UsageError
            For numbers of another shape and infinite ones; no stream has moved then.
        linnet.Error
            Where the prediction of a stream is not finite, as after numbers that overflow. That stream is to begin anew or to be
            restored; the others have moved, as `position` tells.
        """
        given, chosen = self._given("step", values, streams)
        predicted = np.empty((len(given), self.targets), np.float32)
        self._core.step(given.reshape(-1), predicted.reshape(-1), chosen)
        return predicted

    def observe(self, values: Numbers, streams: Indices | None = None) -> None:
        """Takes numbers as `step` does, for less, and predicts nothing."""
        given, chosen = self._given("observe", values, streams)
        self._core.observe(given.reshape(-1), chosen)

    def densities(self, stream: int = 0) -> Densities:
        """The densities of the stream's last prediction, [targets] each. Before the first step of a model of the next step, what
        it predicts for that step. Raises linnet.Error after `observe`, and before the first step of a model of the same step."""
        return Densities(*self._core.densities(whole("densities", "stream", stream)))

    def draw(self, stream: int = 0, seed: int = 0, *, temperature: float = 1.0) -> np.ndarray:
        """One draw from these densities: [targets], float32. It depends on the seed, the position and the target alone. The
        scales are multiplied by `temperature`. Raises linnet.UsageError for a temperature above 0 in a model of squared errors,
        which predicts means alone."""
        return self._core.draw(
            whole("draw", "stream", stream), seed_of("draw", seed), real("draw", "temperature", temperature)
        )

    def fork(self, stream: int, source: int) -> None:
        """Makes `stream` continue as `source` would."""
        self._core.fork(whole("fork", "stream", stream), whole("fork", "source", source))

    def resize(self, streams: int) -> None:
        """Changes the number of streams. Those with an index below it keep everything. All states are copied."""
        self._core.resize(whole("resize", "streams", streams))

    def _given(self, operation: str, values, streams):
        """Numbers [streams, columns], float32, and the streams, None for all."""
        chosen = None if streams is None else wholes(operation, "stream", streams)
        count, columns = self.streams if chosen is None else len(chosen), self.model.columns
        array = floats_of(operation, "values", self.model._in_order(operation, values), np.float32)
        if array.shape == (columns,) and count == 1:
            array = array[None]
        if array.shape != (count, columns):
            raise _core.UsageError(f"[{operation}] expected values [{count}, {columns}], got {list(array.shape)}")
        return array, chosen
