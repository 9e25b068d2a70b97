"""Training and evaluation."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from . import _core
from ._arguments import context_for_callbacks, floats_of, folder_of, integers_of, real, threads_of, whole
from ._configuration import assignments_of, complete_described, configuration, json_of, model_tables
from ._copies import not_copied
from ._dataset import Data, Dataset, dataset_of
from ._model import Model, load
from ._table import Table, csv_of, is_table
from ._types import Config, Integers, Numbers, Path, Settings

_CALLBACKS = ("on_step", "on_evaluation", "on_sample", "on_message", "should_stop")


@dataclass
class Training:
    """What `linnet.train` did. The curves have one number for each update, or for each evaluation, of this call.

    Attributes
    ----------
    model : linnet.Model
        The model after the last update.
    step : int
        Number of the last update.
    finished : bool
        Whether all updates were done, or training.patience ended the run.
    steps : int64 array [updates]
        The numbers of the updates.
    bits : float64 array [updates]
        Bits per counted token or number over the examples of the update.
    smoothed_bits : float64 array [updates]
        Their mean, in which a loss weighs 2 % less with each later update.
    gradient_norm : float64 array [updates]
        Before clipping.
    learning_rate : float64 array [updates]
    evaluation_steps : int64 array [evaluations]
        The updates after which there were evaluations.
    evaluation_bits : float64 array [evaluations]
        Bits per counted token or number of the validation examples.
    evaluation : dict, optional
        The last evaluation, as `linnet.evaluate` returns it; None where there was none.
    best_step : int, optional
        The update of the run's best evaluation, also of calls before this one; None where there was none.
    best_bits : float, optional
        Bits of that evaluation.
    """

    model: Model
    step: int
    finished: bool
    steps: np.ndarray
    bits: np.ndarray
    smoothed_bits: np.ndarray
    gradient_norm: np.ndarray
    learning_rate: np.ndarray
    evaluation_steps: np.ndarray
    evaluation_bits: np.ndarray
    evaluation: dict[str, Any] | None = None
    best_step: int | None = None
    best_bits: float | None = None
    _best: Model | str | None = field(default=None, repr=False)

    @property
    def best_model(self) -> Model | None:
        """The model of the run's best evaluation, read from the folder best of `out`; None where there was none."""
        if isinstance(self._best, str):
            self._best = load(self._best)
        return self._best


class _Curves:
    """Collects the reports of updates and evaluations."""

    def __init__(self, callbacks):
        self.callbacks = callbacks
        self.reports, self.evaluations = [], []

    def functions(self):
        made = {**self.callbacks, "reports": self.reports, "evaluations": self.evaluations}
        if "on_sample" in self.callbacks:
            made["on_sample"] = lambda step, core: self.callbacks["on_sample"](step, Model(core))
        return made

    def of_steps(self, name, dtype=np.float64):
        return np.array([report[name] for report in self.reports], dtype)


def _callbacks_of(callbacks) -> dict:
    if callbacks is None:
        return {}
    if isinstance(callbacks, Mapping):
        unknown = [name for name in callbacks if name not in _CALLBACKS]
        if unknown:
            raise _core.UsageError(f"[train] expected callbacks among {', '.join(_CALLBACKS)}, got {unknown[0]}")
        found = dict(callbacks)
    else:
        found = {name: getattr(callbacks, name) for name in _CALLBACKS if hasattr(callbacks, name)}
        if not found:
            raise _core.ArgumentTypeError(
                f"[train] expected callbacks as a dictionary or an object with {', '.join(_CALLBACKS)}, got "
                f"{type(callbacks).__name__}"
            )
    for name, function in found.items():
        if not callable(function):
            raise _core.ArgumentTypeError(f"[train] expected a function {name}, got {type(function).__name__}")
    return found


def _model_of(operation, model):
    if model is not None and not isinstance(model, Model):
        raise _core.ArgumentTypeError(f"[{operation}] expected a linnet.Model, got {type(model).__name__}")
    return None if model is None else model._core


# Keys by which files become examples of another shape than arrays have.
_SHAPES = {"horizon": 1, "patch": 1, "columns_apart": False, "source_length": 0, "packing": False}


def _check_data_keys(operation, tables, settings, data):
    """Examples in memory are as they are: of keys that say how files are read, settings are refused, and those of a configuration
    that would make other steps are warned of."""
    for key in assignments_of(settings):
        if key.startswith("data."):
            raise _core.UsageError(
                f"[{operation}] expected settings of data.* with a path, got {key.split('=')[0]} for examples in memory, which are as they are"
            )
    table = tables.get("data", {})
    ignored = [key for key, default in _SHAPES.items() if table.get(key, default) != default]
    if ignored and not data._opened:
        warnings.warn(
            f"the configuration's data.{', data.'.join(ignored)} have no effect on examples in memory: each step is one row, and the "
            "next one is predicted",
            stacklevel=4,
        )


def _is_opened(tables, data):
    """Whether the configuration says how these data become examples: files, and the rows of a series."""
    if is_table(data):
        return tables.get("data", {}).get("kind") == "series"
    return data is None or isinstance(data, (str, os.PathLike))


def _data_of(operation, tables, settings, data):
    """The training and the validation examples."""
    if _is_opened(tables, data):
        source = "" if data is None or is_table(data) else folder_of(operation, data)
        contents = csv_of(operation, data) if is_table(data) else None
        return map(Dataset._of, _core.Dataset.open_for_run(json_of(tables), source, contents))
    training = dataset_of(operation, data, or_path=True)
    _check_data_keys(operation, tables, settings, training)
    return training, training


def train(
    config: Config,
    data: Data | Path | None = None,
    *,
    validation: Data | None = None,
    settings: Settings | None = None,
    callbacks: object = None,
    out: Path | None = None,
    resume: bool = False,
    initial: Model | None = None,
    context: _core.Context | None = None,
) -> Training:
    """Trains a model.

    Parameters
    ----------
    config : mapping, path or str
        A dictionary of settings, a TOML file or the name of a shipped configuration ("digits"); `linnet.configuration` says more
        and ``linnet.settings()`` lists all keys. Where it leaves length, vocabulary, classes and picture size open, the data
        decide.
    data : linnet.Dataset, array [examples, length], (tokens, labels), path or DataFrame, optional
        The training examples. An array is one of tokens, [examples, steps] or [examples, steps, fields] of whole numbers, or of
        real numbers, [examples, steps, columns] of a floating type. A path names files as ``linnet train --data`` takes them; without
        data the configuration names them. With data.kind = "series", as in the configuration series, a DataFrame or an array
        [rows, columns] is read as a CSV file with these rows: NaN is a missing cell, and times are a column of dates or the index of
        a frame.
    validation : linnet.Dataset, array or (tokens, labels), optional
        The examples of evaluations. Without them those of the files, for which `settings` may name others
        (``"data.validation"``); arrays are evaluated on the training examples.
    settings : mapping, optional
        Values in place of those of `config`: ``{"training.steps": 200}``. Examples in memory take none of data.*.
    callbacks : mapping or object, optional
        Functions on_step(report), on_evaluation(step, evaluation), on_sample(step, model), on_message(text) and should_stop(),
        after whose True training ends. An exception in one of them ends it too.
    out : path, optional
        The folder of the run, as ``linnet train --out`` writes it; a temporary one without it.
    resume : bool
        Whether to continue the run in `out` from its newest checkpoint.
    initial : linnet.Model, optional
        The model to start from.
    context : linnet.Context, optional

    Returns
    -------
    linnet.Training
        The model and the curves of its losses. Equal arguments give equal bits, for any number of threads.

    Raises
    ------
    linnet.UsageError
        For settings and data that do not fit.
    linnet.Error
        Where the loss is no longer finite, or files cannot be written.
    KeyboardInterrupt
        After Ctrl-C, which saves a checkpoint first. Its attribute `training` is what was trained until then, as this function
        returns it; None before the first checkpoint.
    """
    import tempfile  # takes its time

    tables = configuration(config, settings)
    curves = _Curves(_callbacks_of(callbacks))
    start = _model_of("train", initial)
    if resume and out is None:
        raise _core.UsageError("[train] expected out, the folder of the run to resume, got none")
    text = json_of(tables)
    training, held_out = _data_of("train", tables, settings, data)
    if validation is not None:
        held_out = dataset_of("train", validation)
    with tempfile.TemporaryDirectory(prefix="linnet-") as temporary:
        folder = os.path.join(temporary, "run") if out is None else folder_of("train", out)
        try:
            with context_for_callbacks(context) as own:
                done = _core.train(own, text, training._core, held_out._core, folder, bool(resume), start, curves.functions())
        except KeyboardInterrupt as stopped:
            setattr(stopped, "training", _stopped_in(folder, out is None, curves))
            raise
        return _training_in(folder, out is None, curves, **done)


def _stopped_in(folder: str, temporary: bool, curves: _Curves) -> Training | None:
    """What was trained in this folder until a callback or a signal has ended it; None where there was nothing yet."""
    try:
        steps = [int(name) for name in os.listdir(os.path.join(folder, "checkpoints")) if name.isdigit()]
        evaluation = curves.evaluations[-1][1] if curves.evaluations else None
        best: dict[str, Any] = {}
        place = os.path.join(folder, "best", "evaluation.json")
        if os.path.exists(place):
            with open(place, encoding="utf-8") as file:
                read = json.load(file)
            best = {"best_step": read["step"], "best_bits": read["validation_bits"]}
        return _training_in(folder, temporary, curves, step=max(steps), finished=False, evaluation=evaluation, **best)
    except (_core.Error, OSError, ValueError, KeyError):
        return None


def _training_in(folder: str, temporary: bool, curves: _Curves, **done: Any) -> Training:
    """What was trained in this folder, which is gone later where it is temporary."""
    best = os.path.join(folder, "best")
    found = os.path.exists(os.path.join(best, "config.json"))
    return Training(
        model=load(folder),
        _best=None if not found else load(best) if temporary else os.path.abspath(best),
        steps=curves.of_steps("step", np.int64),
        bits=curves.of_steps("bits"),
        smoothed_bits=curves.of_steps("smoothed_bits"),
        gradient_norm=curves.of_steps("gradient_norm"),
        learning_rate=curves.of_steps("learning_rate"),
        evaluation_steps=np.array([at for at, _ in curves.evaluations], np.int64),
        evaluation_bits=np.array([evaluation["bits"] for _, evaluation in curves.evaluations], np.float64),
        **done,
    )


def evaluate(
    model: Model,
    data: Data | Path,
    *,
    examples: int = 0,
    batch: int = 8,
    accuracy: bool = False,
    kind: str = "",
    context: _core.Context | None = None,
) -> dict[str, Any]:
    """Mean loss of a model on examples.

    Parameters
    ----------
    model : linnet.Model
    data : linnet.Dataset, array as in `linnet.train`, (tokens, labels) or path
        A path names files, of which the validation examples are taken; so does a DataFrame or an array [rows, columns] of a series.
    examples : int
        So many evenly spaced ones; 0 for all.
    batch : int
        Examples per pass.
    accuracy : bool
        Whether to compare the most probable value of every token.
    kind : str
        The kind of files where the name does not tell.
    context : linnet.Context, optional

    Returns
    -------
    dict
        bits (per token or number), accuracy (NaN where it was not asked for), tokens (what was counted), examples, and non_positive,
        the share of queries whose linear attention had no positive denominator. Models of tokens and labels add perplexity, those of
        several fields field_bits; those of real numbers squared_error, absolute_error, naive_squared_error and
        naive_absolute_error, with steps of several rows also seasonal_squared_error and seasonal_absolute_error, all of these and
        their bits in deviations of the training data; those of both token_bits and value_nats; classifiers of up to 1,000 classes
        confusion, [classes * classes] by row.
    """
    core = _model_of("evaluate", model)
    if core is None:
        raise _core.ArgumentTypeError("[evaluate] expected a linnet.Model, got None")
    if isinstance(data, (str, os.PathLike)) or (model.columns > 0 and is_table(data)):
        held_out = Dataset.open(data, model, kind)[1]
    else:
        held_out = dataset_of("evaluate", data, or_path=True)
    examples, batch = whole("evaluate", "examples", examples), whole("evaluate", "batch", batch)
    with context_for_callbacks(context) as own:  # for functions that handle signals
        return _core.evaluate(own, core, held_out._core, examples, batch, bool(accuracy))


@not_copied("trainer", "save and restore for another trainer")
class Trainer:
    """A model in training, one update at a time, on examples that the caller chooses.

    Parameters
    ----------
    config : mapping, path or str
        As in `linnet.train`; without data as in `linnet.random_model`.
    data : as in `linnet.train`, optional
        The training data. They decide what the configuration leaves open (length, vocabulary, classes, picture size), the scale of
        real numbers, unless an initial model has one, and what the model keeps for later: names of labels and columns, the tokenizer.
    settings : mapping, optional
    initial : linnet.Model, optional
        The model to start from.
    threads : int
        0 stands for one per processor.
    """

    def __init__(
        self,
        config: Config,
        data: Data | Path | Table | None = None,
        *,
        settings: Settings | None = None,
        initial: Model | None = None,
        threads: int = 0,
    ):
        tables = configuration(config, settings)
        self._data: Dataset | None = None
        if data is None:
            complete_described("trainer", tables)
        else:
            self._data, _ = _data_of("trainer", tables, settings, data)
        self._core = _core.Trainer(
            json_of(tables),
            threads_of("trainer", threads),
            _model_of("trainer", initial),
            None if self._data is None else self._data._core,
        )
        self._objective = self.config["model"]["objective"]

    def __repr__(self) -> str:
        return f"<linnet.Trainer: {self.steps} updates>"

    @property
    def config(self) -> dict[str, dict[str, Any]]:
        """The configuration of the model."""
        return model_tables(self._core.config)

    @property
    def steps(self) -> int:
        """Number of updates so far."""
        return self._core.steps

    @property
    def learning_rate(self) -> float:
        """The learning rate of the next update.

        A number that is set is that of all later updates, in place of the schedule's; with None the schedule's comes back. Checkpoints
        do not hold it, and `restore` leaves it as it is.
        """
        return self._core.learning_rate

    @learning_rate.setter
    def learning_rate(self, rate: float | None) -> None:
        self._core.set_learning_rate(None if rate is None else real("trainer", "a learning rate", rate))

    @property
    def model(self) -> Model:
        """A copy of the model as it is now."""
        return Model(self._core.model())

    def step(self, tokens: Integers, labels: Integers | None = None, lengths: Integers | None = None) -> dict[str, Any]:
        """One update of a next-token model with whole examples.

        Parameters
        ----------
        tokens : array [examples, length] of whole numbers
        labels : sequence [examples], optional
            Classes, for a model that has them.
        lengths : sequence [examples], optional
            Tokens of each example; the rest of its row is padding. Without it a last token of -1 is one that is not predicted
            (as padding of a single token), and -1 anywhere else is refused.

        Returns
        -------
        dict
            step, bits, smoothed_bits, gradient_norm, learning_rate and tokens_per_second.
        """
        if self._objective != "next-token":
            raise _core.UsageError(
                f"[step] expected step_with_targets or step_examples for a model of the objective {self._objective}, got step"
            )
        targets = np.array(integers_of("step", "tokens", tokens, np.int32), np.int32)
        if targets.ndim != 2 or targets.size == 0:
            raise _core.UsageError(f"[step] expected tokens [examples, length], neither of them 0, got {list(targets.shape)}")
        inputs = np.empty_like(targets)
        inputs[:, 1:] = targets[:, :-1]
        if labels is None:
            inputs[:, 0] = self._core.first_input(-1)
        else:
            chosen = integers_of("step", "labels", labels, np.int64).reshape(-1)
            if len(chosen) != len(targets):
                raise _core.UsageError(f"[step] expected {len(targets)} labels, got {len(chosen)}")
            inputs[:, 0] = [self._core.first_input(int(label)) for label in chosen]
        if lengths is not None:
            lengths = integers_of("step", "lengths", lengths, np.int64).reshape(-1)
            if len(lengths) != len(targets):
                raise _core.UsageError(f"[step] expected {len(targets)} lengths, got {len(lengths)}")
            padding = np.arange(targets.shape[1]) >= lengths[:, None]
            targets[padding] = -1
            inputs[padding] = 0
        return self._step(inputs=inputs, targets=targets, key_lengths=lengths)

    def step_examples(self, indices: Integers | None = None, *, data: Dataset | None = None) -> dict[str, Any]:
        """One update with examples of a data set, for models of every kind: of tokens, of real numbers, masked, of labels, with
        sources.

        Parameters
        ----------
        indices : as in `Dataset.select`, optional
            Which examples. Without it update n takes the n-th training.batch * training.accumulate ones in the order of
            `linnet.train`, whatever the updates before took; all updates so are those of `linnet.train`, in the same bits.
        data : linnet.Dataset, optional
            In place of the data that the trainer was made with.

        Returns
        -------
        dict
            As of `step`.

        Raises
        ------
        linnet.UsageError
            For no data, data that the model does not take, and indices that they do not have.
        """
        if data is None:
            data = self._data
        if not isinstance(data, Dataset):
            found = "none" if data is None else type(data).__name__
            raise _core.UsageError(f"[step] expected data as a linnet.Dataset, here or where the trainer was made, got {found}")
        chosen = None if indices is None else data._indices_of("step", indices)
        return self._core.step_examples(data._core, chosen)

    def step_with_targets(
        self,
        inputs: Integers | None = None,
        targets: Integers | None = None,
        key_lengths: Integers | None = None,
        *,
        conditions: Integers | None = None,
        values: Numbers | None = None,
        value_targets: Numbers | None = None,
        labels: Integers | None = None,
        positions: Integers | None = None,
        source: Integers | None = None,
        source_lengths: Integers | None = None,
    ) -> dict[str, Any]:
        """One update with inputs and targets of the caller's own. A model takes those that it has inputs and predictions for.

        Parameters
        ----------
        inputs : array [examples, length], with several fields [examples, length, fields]
            For a next-token model the start or class token and all tokens but the last; further fields begin with the number of
            their values, and steps of real numbers alone have the start or class token and then -1. For a masked one all tokens with
            the mask token (the vocabulary, or the number of values of the field) in place of hidden ones. For models of labels the
            tokens as they are.
        targets : array of the same shape
            The token to predict at each position, or -1 where nothing is.
        key_lengths : sequence [examples], optional
            Positions of each example before its padding.
        conditions : array of the shape of the targets, optional
            Of a next-token model of several fields: the tokens of the steps to predict, from which the later fields of a step are
            predicted, or -1 where they are not known. Without it these are the targets: a field that does not count is then not
            known to later ones either.
        values : array [examples, length, columns]
            Real numbers of the inputs: of a next-token model those of the steps before, NaN in the first one. NaN is read as the mean.
        value_targets : array [examples, length, targets]
            The real numbers to predict at each position, NaN where nothing is.
        labels : sequence [examples]
            The labels that a classifier predicts; -1 does not count.
        positions : array [examples, length], optional
            The position of each step in its own sequence where examples hold several ones, one after another.
        source : array [examples, source length]
            What an encoder-decoder model reads.
        source_lengths : sequence [examples], optional
            Tokens of each source before its padding.

        Returns
        -------
        dict
            As of `step`.

        Raises
        ------
        linnet.UsageError
            For shapes that do not fit, tokens beyond the vocabulary and no target at all.
        linnet.Error
            For a loss or a gradient that is not finite.
        """
        return self._step(
            inputs=inputs,
            targets=targets,
            key_lengths=key_lengths,
            conditions=conditions,
            values=values,
            value_targets=value_targets,
            labels=labels,
            positions=positions,
            source=source,
            source_lengths=source_lengths,
        )

    def _step(self, **given: Any) -> dict[str, Any]:
        parts = {}
        for name, value in given.items():
            if value is None:
                continue
            if name in ("values", "value_targets"):
                parts[name] = floats_of("step", name, value, np.float32)
            else:
                parts[name] = integers_of("step", name, value, np.int64 if name in ("key_lengths", "source_lengths") else np.int32)
        examples, length = self._extents_of(parts)
        return self._core.step(examples, length, {name: part.reshape(-1) for name, part in parts.items()})

    def _extents_of(self, parts: dict[str, np.ndarray]) -> tuple[int, int]:
        """The examples of an update and their length, in which all parts agree."""
        steps = [name for name in ("inputs", "targets", "conditions", "values", "value_targets", "positions") if name in parts]
        if not steps:
            raise _core.UsageError("[step] expected inputs or values, got neither")
        for name in steps:
            if parts[name].ndim not in (2, 3) or 0 in parts[name].shape:
                raise _core.UsageError(f"[step] expected {name} [examples, length, ...], none of them 0, got {list(parts[name].shape)}")
            if parts[name].shape[:2] != parts[steps[0]].shape[:2]:
                raise _core.UsageError(
                    f"[step] expected {name} of {list(parts[steps[0]].shape[:2])} steps, as of {steps[0]}, got {list(parts[name].shape[:2])}"
                )
        examples, length = parts[steps[0]].shape[:2]
        for name, shape in (
            ("positions", f"[{examples}, {length}]"),
            ("source", f"[{examples}, source length]"),
            ("labels", f"[{examples}]"),
            ("key_lengths", f"[{examples}]"),
            ("source_lengths", f"[{examples}]"),
        ):
            if name in parts and (parts[name].ndim != shape.count(",") + 1 or len(parts[name]) != examples):
                raise _core.UsageError(f"[step] expected {name} {shape}, got {list(parts[name].shape)}")
        return examples, length

    def save(self, folder: Path) -> None:
        """Writes a checkpoint, from which `restore` continues with the same bits."""
        self._core.save(folder_of("save", folder))

    def restore(self, folder: Path) -> None:
        """Continues from a checkpoint. The trainer is unchanged where it fails. The data are those that it was made with: whether the
        checkpoint was trained on the same is not known."""
        self._core.restore(folder_of("restore", folder))
