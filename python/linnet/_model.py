"""Trained models."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, NamedTuple, Unpack

import numpy as np

from . import _core
from ._arguments import bytes_of, context_of, folder_of, integers_of, seed_of, whole
from ._configuration import assignments_of, complete_described, configuration, json_of, model_tables
from ._copies import not_copied
from ._densities import Densities
from ._number_session import NumberSession
from ._session import Session
from ._steps import Steps, shifted, steps_of
from ._table import in_order
from ._tokenizer import TextStream, Tokenizer
from ._types import Config, GenerationOptions, Integers, Labels, Numbers, Path, SessionOptions, Settings, Tokens, overload

_BYTES, _PAIRS = 256, 258


class Filling(NamedTuple):
    """What a masked model predicts at its hidden positions, in the order of the tokens."""

    positions: np.ndarray
    """[hidden], indices into the tokens [batch · length]."""
    tokens: np.ndarray
    """[hidden], the most probable token of each."""
    probabilities: np.ndarray
    """[hidden, vocabulary], float32; every row adds up to 1."""


@not_copied("model", "save and linnet.load for a copy in a file")
class Model:
    """A trained model: immutable, shared by any number of sessions and threads. `linnet.load` and `linnet.train` make one."""

    def __init__(self, core: _core.Model):
        if not isinstance(core, _core.Model):
            raise _core.ArgumentTypeError(
                f"[model] expected what linnet.load or linnet.random_model makes, got {type(core).__name__}"
            )
        self._core = core
        self._config = model_tables(core.config)

    def __repr__(self) -> str:
        sizes = self._config["model"]
        family = self._config["attention"]["family"]
        shape = f"{sizes['layers']} layers of width {sizes['width']}"
        return f"<linnet.Model: {shape}, {family}, {self.parameter_count} parameters>"

    @property
    def config(self) -> dict[str, dict[str, Any]]:
        """The configuration: the tables model, attention and image of config.json. A copy."""
        return {name: dict(table) for name, table in self._config.items()}

    @property
    def parameter_count(self) -> int:
        """Number of trained parameters."""
        return self._core.parameter_count

    @property
    def weight_bytes(self) -> int:
        """Bytes of the weights as they are used."""
        return self._core.weight_bytes

    @property
    def vocabulary(self) -> int:
        """Tokens are 0 ... vocabulary - 1."""
        return self._config["model"]["vocabulary"]

    @property
    def fields(self) -> tuple[int, ...]:
        """Numbers of values of the fields of a step: `vocabulary` alone in a model of one token per step."""
        fields = self._config["model"]["fields"]
        return tuple(int(size) for size in fields.split(",")) if fields else (self.vocabulary,)

    @property
    def columns(self) -> int:
        """Real numbers of a step."""
        return self._config["model"]["columns"]

    @property
    def length(self) -> int:
        """Tokens of a training example."""
        return self._config["model"]["length"]

    @property
    def classes(self) -> int:
        """Labels are 0 ... classes - 1; 0 for a model without them."""
        return self._config["model"]["classes"]

    @property
    def class_names(self) -> tuple[str, ...]:
        """The names of the labels, in their order; empty where the training data had none."""
        return tuple(self._core.class_names)

    @property
    def column_names(self) -> tuple[str, ...]:
        """The names of the columns of the series that the model was trained with, as its files have them; empty for others."""
        return tuple(self._core.column_names)

    @cached_property
    def tokenizer(self) -> Tokenizer | None:
        """What makes tokens of text: that of the training data, or bytes where there are 256 tokens, and 258 in a model of pairs.
        None for models of pictures, several fields or real numbers and others whose tokens are no text."""
        text = self.image is None and len(self.fields) == 1
        known = self._core.has_tokenizer or self.vocabulary in (_BYTES, _PAIRS)
        return Tokenizer._of(self._core) if text and known else None

    @property
    def _has_pairs(self) -> bool:
        """Whether the tokens are those of pairs: bytes, a separator and an end."""
        return self.vocabulary == _PAIRS and self.image is None and len(self.fields) == 1 and not self._core.has_tokenizer

    @property
    def image(self) -> tuple[int, int, int] | None:
        """Height, width and channels of a model of pictures, None for any other."""
        table = self._config["image"]
        return (table["height"], table["width"], table["channels"]) if table["height"] else None

    def save(self, folder: Path) -> None:
        """Writes config.json, model.safetensors and what else the model has (labels.json, tokenizer.model) into the folder, each
        file atomically."""
        self._core.save(folder_of("save", folder))

    def session(self, streams: int = 1, **options: Unpack[SessionOptions]) -> Session | NumberSession:
        """A `linnet.Session` of this model, or a `linnet.NumberSession` where its steps are real numbers alone. For type
        checkers `linnet.Session(model, ...)` and `linnet.NumberSession(model, ...)` are the exact ones."""
        numbers = self.columns > 0 and not self._sizes and self._config["model"]["objective"] != "classify"
        kind: Any = NumberSession if numbers else Session
        return kind(self, streams, **options)

    def text_stream(self, before: Tokens = ()) -> TextStream:
        """A `linnet.TextStream` for tokens that a session draws, behind a prompt of tokens or text."""
        if self.tokenizer is None:
            raise _core.UsageError(f"[text] expected a model of text, got one of {self.vocabulary} tokens that are none")
        return TextStream(self.tokenizer, self._tokens_of("text", before))

    def logits(
        self,
        tokens: Tokens,
        label: Labels | None = None,
        *,
        key_lengths: Integers | None = None,
        context: _core.Context | None = None,
    ) -> np.ndarray:
        """Logits of every token, given those before it.

        Row i has the logits of token i: up to a constant the logarithms of its probabilities. The first is predicted from the
        start token, or from the class token of `label`; so the last token has no influence. In a masked model row i is the
        prediction of position i from the tokens on both sides, and -1 stands for a hidden token.

        Parameters
        ----------
        tokens : array [length] or [batch, length] of whole numbers, or text for a model of text
        label : int or sequence of int, optional
            The class, for a model that has them; 0 without it.
        key_lengths : sequence [batch], optional
            Tokens of each entry before its padding, which may be any tokens.
        context : linnet.Context, optional

        Returns
        -------
        array [length, vocabulary] or [batch, length, vocabulary], float32
        """
        self._require_tokens("logits")
        lengths = _lengths("logits", key_lengths)
        steps = self._inputs_of("logits", tokens, None, label, lengths)
        assert steps.tokens is not None
        rows = self._core.logits(context_of(context), np.ascontiguousarray(steps.tokens[:, :, 0]), lengths)
        return rows if steps.batched else rows[0]

    def hidden(
        self,
        tokens: Tokens | None = None,
        label: Labels | None = None,
        *,
        values: Numbers | None = None,
        key_lengths: Integers | None = None,
        context: _core.Context | None = None,
    ) -> np.ndarray:
        """The rows that the output head takes: embeddings of the steps in their context.

        In a model of the next step row i is made of the steps before i, as in `logits`; in any other model also of step i, and
        where it is bidirectional of all of them.

        Parameters
        ----------
        tokens : array [length] or [batch, length] of whole numbers, or text for a model of text, optional
            With several fields [length, fields] or [batch, length, fields]. In a masked model -1 stands for a hidden token.
        label : int or sequence of int, optional
            The class, for a model of the next step that has them; 0 without it.
        values : array [length, columns] or [batch, length, columns], optional
            For models of real numbers; NaN stands for a number that is not known.
        key_lengths : sequence [batch], optional
            Steps of each entry before its padding, which may be anything.
        context : linnet.Context, optional

        Returns
        -------
        array [length, width] or [batch, length, width], float32
            Rows of padding may be anything.
        """
        if tokens is not None:
            self._require_tokens("hidden")
        lengths = _lengths("hidden", key_lengths)
        steps = self._inputs_of("hidden", tokens, values, label, lengths)
        rows = self._core.hidden(context_of(context), *steps.arguments(lengths))
        return rows if steps.batched else rows[0]

    def score(
        self,
        tokens: Tokens,
        label: int | None = None,
        *,
        source: Tokens | None = None,
        context: _core.Context | None = None,
    ) -> np.ndarray:
        """Natural logarithm of the probability of every token of one sequence, given those before it.

        Parameters
        ----------
        tokens : array [length] of whole numbers, of several fields [length, fields], or text for a model of text
        label : int, optional
            The class, for a model that has them; 0 without it.
        source : array [n] of whole numbers, or text for sources of bytes
            What an encoder–decoder model reads; for such models alone.

        Returns
        -------
        array of the shape of the tokens, float32
            A token of several fields is predicted from the fields of its step before it, too.
        """
        read = None if source is None else self._source_of("score", source)
        found = self._core.score(context_of(context), self._tokens_of("score", tokens), self._label(label), read)
        return found if len(self.fields) == 1 else found.reshape(-1, len(self.fields))

    def classify(
        self,
        tokens: Tokens | Sequence[str] | None = None,
        *,
        values: Numbers | None = None,
        key_lengths: Integers | None = None,
        context: _core.Context | None = None,
    ) -> np.ndarray:
        """The probabilities of the labels of sequences, of a model with the objective classify.

        Parameters
        ----------
        tokens : array [length] or [batch, length] of whole numbers, or a text or a list of texts for a model of text
            With several fields [length, fields] or [batch, length, fields].
        values : array [length, columns] or [batch, length, columns]
            For models of real numbers; NaN stands for a number that is not known.
        key_lengths : sequence [batch], optional
            Steps of each entry before its padding, which may be anything.
        context : linnet.Context, optional

        Returns
        -------
        array [classes] or [batch, classes], float32; every row adds up to 1
        """
        if _are_texts(tokens):
            if key_lengths is not None:
                raise _core.UsageError("[classify] expected no key_lengths with texts, whose lengths they are, got some")
            tokens, key_lengths = self._batch_of_texts("classify", tokens)
        lengths = _lengths("classify", key_lengths)
        steps = self._steps_of("classify", tokens, values, lengths)
        result = self._core.classify(context_of(context), *steps.arguments(lengths))
        return result if steps.batched else result[0]

    def predict(
        self,
        values: Numbers | None = None,
        label: Labels | None = None,
        *,
        tokens: Tokens | None = None,
        key_lengths: Integers | None = None,
        context: _core.Context | None = None,
    ) -> Densities:
        """The density of every number that a model predicts at each step.

        In a model of the next step row i is the prediction of the numbers of step i (with `targets` of more numbers, of those
        from step i on) from the steps before, as in `logits`: the last step has no influence, and a row of NaN behind what is
        known asks for the next one. In a model of the same step row i is predicted from the steps up to i, or from all of them
        where the model is bidirectional.

        Parameters
        ----------
        values : array [length, columns] or [batch, length, columns] of numbers
            NaN stands for a number that is not known. Of a DataFrame the columns that the model was trained with are taken, by
            their names.
        label : int or sequence of int, optional
            The class, for a model of the next step that has them; 0 without it.
        tokens : array [length] or [batch, length], with several fields [length, fields] or [batch, length, fields], optional
            For models that have tokens beside the numbers.
        key_lengths : sequence [batch], optional
            Steps of each entry before its padding, which may be anything.
        context : linnet.Context, optional

        Returns
        -------
        linnet.Densities, arrays [length, targets] or [batch, length, targets], float32
        """
        lengths = _lengths("predict", key_lengths)
        steps = self._inputs_of("predict", tokens, values, label, lengths)
        parts = self._core.predict(context_of(context), *steps.arguments(lengths))
        return Densities(*(part if steps.batched else part[0] for part in parts))

    def fill(
        self, tokens: Tokens, *, key_lengths: Integers | None = None, context: _core.Context | None = None
    ) -> Filling:
        """The distribution of every hidden token of a masked model, where -1 stands for a hidden one.

        All hidden tokens of an entry are predicted in one pass, from those that are given.

        Parameters
        ----------
        tokens : array [length] or [batch, length] of whole numbers
        key_lengths : sequence [batch], optional

        Returns
        -------
        linnet.Filling
        """
        rows = self._batch_of("fill", tokens)[0]
        return Filling(*self._core.fill(context_of(context), rows, _lengths("fill", key_lengths)))

    @overload
    def generate(self, count: None = None, **options: Unpack[GenerationOptions]) -> np.ndarray | str: ...
    @overload
    def generate(self, count: int, **options: Unpack[GenerationOptions]) -> np.ndarray | list[str]: ...
    @overload
    def generate(
        self, count: int | None = None, **options: Unpack[GenerationOptions]
    ) -> np.ndarray | list[str] | str: ...
    def generate(
        self,
        count: int | None = None,
        *,
        label: Labels | None = None,
        source: Tokens | None = None,
        prompt: Tokens | None = None,
        length: int | None = None,
        temperature: float = 1.0,
        top_k: int | None = None,
        top_p: float = 1.0,
        seed: int = 0,
        streams: int = 64,
        cache: bool = True,
        threads: int = 0,
        progress: Callable[[int, int], object] | None = None,
    ) -> np.ndarray | list[str] | str:
        """Draws pictures, text or tokens.

        Parameters
        ----------
        count : int, optional
            How many; without it the result is one of them and not a sequence.
        label : int or sequence of int, optional
            The classes to draw in turn; without it all classes in turn.
        source : array [n] of whole numbers, or text for sources of bytes
            What an encoder–decoder model reads, or a model of pairs without an encoder; required in the former, and for such
            models alone. It is no part of the result.
        prompt : text, array of tokens, or for pictures uint8 rows [rows, width] (or [rows, width, channels]), optional
            What each of them begins with. It is part of the result.
        length : int, optional
            Tokens to draw after the prompt, for models of text and tokens. Without it as many as a training example has, of models with
            learned positions together with the prompt.
        temperature, top_k, top_p : float, int, float
            As in `Session.begin`.
        seed : int
            Of the first; each next one adds 1.
        streams : int
            How many are drawn at the same time. The result does not depend on it.
        cache : bool
            False computes every token from the whole sequence again.
        threads : int
            0 stands for one per processor.
        progress : function, optional
            Called as progress(tokens drawn, tokens in all) after every step.

        Returns
        -------
        For pictures a uint8 array [count, height, width], with channels [count, height, width, channels]; for models of text a
        list of str, in a model of pairs that of the answers to `source`; for other models, and a model of pairs without a source,
        an int32 array [count, prompt + length].
        """
        tokenizer = self.tokenizer
        number = 1 if count is None else whole("generate", "count", count)
        drawn = self.generate_tokens(
            number,
            label=label,
            source=source,
            prompt=prompt,
            length=length,
            temperature=temperature,
            top_k=top_k,
            top_p=top_p,
            seed=seed,
            streams=streams,
            cache=cache,
            threads=threads,
            progress=progress,
        )
        result: np.ndarray | list[str] = drawn
        if self.image is not None:
            result = self.pixels(drawn)
        elif tokenizer is not None and (source is not None or not self._has_pairs):
            result = [self._text_of(tokenizer, row, prompt) for row in drawn]
        return result[0] if count is None else result

    def generate_tokens(
        self,
        count: int = 1,
        *,
        label: Labels | None = None,
        source: Tokens | None = None,
        prompt: Tokens | None = None,
        length: int | None = None,
        temperature: float = 1.0,
        top_k: int | None = None,
        top_p: float = 1.0,
        seed: int = 0,
        streams: int = 64,
        cache: bool = True,
        threads: int = 0,
        progress: Callable[[int, int], object] | None = None,
    ) -> np.ndarray:
        """The same as tokens: an int32 array [count, prompt + length]. An answer to a `source` of a model of pairs
        that ends earlier is filled with the end."""
        self._core.check_generates()
        if len(self.fields) > 1:
            raise _core.UsageError(
                f"[generate] expected a model of one token per step (linnet.Session.step draws several), got one of "
                f"{len(self.fields)} fields"
            )
        count, streams = whole("generate", "count", count), whole("generate", "streams", streams)
        for name, value in (("count", count), ("streams", streams)):
            if value < 1:
                raise _core.UsageError(f"[generate] expected {name} of at least 1, got {value}")
        has_encoder = bool(self._config["model"]["encoder_layers"])
        if source is None and has_encoder:
            raise _core.UsageError("[generate] expected a source for an encoder–decoder model, got none")
        if source is not None and not has_encoder and not self._has_pairs:
            raise _core.UsageError("[generate] expected no source for a model without an encoder or pairs, got one")
        pairs = self.tokenizer if source is not None and self._has_pairs else None
        separator, end = (-1, -1) if pairs is None else (pairs.separator, pairs.end)
        labels = self._labels_in_turn(label)
        given = self._prompt_of(prompt)
        before = np.empty(0, np.int32)
        if source is not None and not has_encoder:
            before = np.append(self._source_of("generate", source), np.int32(separator))
            source = None
        total = self._total("generate", len(before) + len(given), length) - len(before)
        seed = seed_of("generate", seed)
        if progress is not None and not callable(progress):
            raise _core.ArgumentTypeError(f"[generate] expected a function progress, got {type(progress).__name__}")
        examples = np.empty((count, total), np.int32)
        examples[:, : len(given)] = given
        new = total - len(given)
        for first in range(0, count, streams):
            here = min(streams, count - first)
            session = Session(self, here, capacity=len(before) + total, cache=cache, threads=threads)
            for i in range(here):
                session.begin(
                    i,
                    labels[(first + i) % len(labels)],
                    temperature=temperature,
                    top_k=top_k,
                    top_p=top_p,
                    seed=seed + first + i,
                    source=source,
                )
            if len(before) + len(given):
                session.prefill(range(here), [np.append(before, given)] * here)
            rows, open_rows = examples[first : first + here], np.arange(here)
            for position in range(len(given), total):
                drawn = session.step(None if len(open_rows) == here else open_rows)
                rows[open_rows, position] = drawn
                if end in drawn:
                    rows[open_rows[drawn == end], position:] = end
                    open_rows = open_rows[drawn != end]
                steps = position + 1 - len(given) if len(open_rows) else new
                if progress is not None:
                    progress(first * new + here * steps, count * new)
                if not len(open_rows):
                    break
        return examples

    def pixels(self, tokens: Integers) -> np.ndarray:
        """Tokens of a model of pictures as uint8 pixels: [..., height, width], with channels [..., height, width, channels]."""
        if self.image is None:
            raise _core.UsageError("[pixels] expected a model of pictures, got one whose tokens are not pixels")
        height, width, channels = self.image
        levels = integers_of("pixels", "tokens", tokens, np.int32)
        if levels.shape[-1:] != (height * width * channels,):
            raise _core.UsageError(f"[pixels] expected {height * width * channels} tokens a picture, got {list(levels.shape)}")
        table = np.array([_core.pixel_of_token(token, self.vocabulary) for token in range(self.vocabulary)], np.uint8)
        if levels.size and (levels.min() < 0 or levels.max() >= self.vocabulary):
            found = f"{levels.min()} ... {levels.max()}"
            raise _core.UsageError(f"[pixels] expected tokens in 0 ... {self.vocabulary - 1}, got {found}")
        shape = levels.shape[:-1] + ((height, width) if channels == 1 else (height, width, channels))
        return table[levels].reshape(shape)

    @property
    def _sizes(self) -> tuple[int, ...]:
        """Numbers of values of the fields of a step; none where steps are real numbers alone."""
        return self.fields if self._config["model"]["fields"] or self.vocabulary else ()

    def _steps_of(self, operation: str, tokens, values, key_lengths, least: int = 0) -> Steps:
        if isinstance(tokens, (str, bytes)):
            tokens = self._tokens_of(operation, tokens)
        return steps_of(operation, self._sizes, self.columns, tokens, values, key_lengths, least)

    def _in_order(self, operation: str, values):
        """The columns of a frame by their names, where a step has all of them."""
        return in_order(operation, values, self.column_names if len(self.column_names) == self.columns else ())

    def _inputs_of(self, operation: str, tokens, values, label, key_lengths) -> Steps:
        """The steps as the model's inputs: those of a model of the next step one later, and of a masked one with its tokens in place
        of hidden ones, -1."""
        masked = self._core.masked
        steps = self._steps_of(operation, tokens, self._in_order(operation, values), key_lengths, -1 if masked else 0)
        first = self._first_inputs(operation, label, steps.batch)
        if masked and steps.tokens is not None:
            return steps._replace(tokens=np.where(steps.tokens < 0, np.array(self._sizes, np.int32), steps.tokens))
        return shifted(steps, first, self._sizes) if self._config["model"]["objective"] == "next-token" else steps

    def _batch_of_texts(self, operation: str, texts) -> tuple[np.ndarray, np.ndarray]:
        """Tokens [batch, length], with padding, and the numbers of those of each text."""
        each = [self._tokens_of(operation, text) for text in texts]
        lengths = np.array([len(tokens) for tokens in each], np.int64)
        if not lengths.all():
            raise _core.UsageError(f"[{operation}] expected texts of at least 1 token, got an empty one")
        batch = np.zeros((len(each), lengths.max()), np.int32)
        for row, tokens in zip(batch, each):
            row[: len(tokens)] = tokens
        return batch, lengths

    def _source_of(self, operation: str, source) -> np.ndarray:
        """The tokens of a source, int32."""
        sizes = self._config["model"]
        if isinstance(source, (str, bytes)):
            if (sizes["source_vocabulary"] or self.vocabulary) not in (_BYTES, _PAIRS):
                raise _core.UsageError(f"[{operation}] expected the tokens of a source, got text")
            return np.frombuffer(bytes_of(operation, source), np.uint8).astype(np.int32)
        tokens = integers_of(operation, "source", source, np.int32)
        if tokens.ndim != 1:
            raise _core.UsageError(f"[{operation}] expected a source [n], got {list(tokens.shape)}")
        return tokens

    def _first_inputs(self, operation: str, label, batch: int) -> np.ndarray:
        """The first inputs of the entries of a batch."""
        labels = [self._label(label)] if np.ndim(label) == 0 else [self._label(one) for one in label]
        if len(labels) not in (1, batch):
            raise _core.UsageError(f"[{operation}] expected 1 or {batch} labels, got {len(labels)}")
        return np.broadcast_to(np.array([self._core.first_input(one) for one in labels], np.int32), batch)

    def _label(self, label) -> int:
        if label is None:
            return 0 if self.classes else -1
        return whole("label", "label", label)

    def _labels_in_turn(self, label) -> list:
        if label is None:
            return list(range(self.classes)) if self.classes else [None]
        labels = [label] if np.ndim(label) == 0 else list(label)
        if not labels:
            raise _core.UsageError("[generate] expected at least 1 label, got none")
        return [whole("generate", "label", one) for one in labels]

    def _require_tokens(self, operation: str) -> None:
        if not self._sizes:
            raise _core.UsageError(f"[{operation}] expected a model of tokens, got one of real numbers alone")

    def _tokens_of(self, operation: str, tokens) -> np.ndarray:
        """Tokens [length], int32; of several fields those of [length, fields] one after another."""
        self._require_tokens(operation)
        if isinstance(tokens, (str, bytes)):
            if self.tokenizer is None:
                raise _core.UsageError(f"[{operation}] expected tokens in 0 ... {self.vocabulary - 1}, got text")
            return self.tokenizer.encode(tokens)
        array = integers_of(operation, "tokens", tokens, np.int32)
        fields = len(self.fields)
        if fields > 1 and array.ndim == 2 and array.shape[1] == fields:
            return array.reshape(-1)
        if array.ndim != 1:
            expected = "tokens [length]" if fields == 1 else f"tokens [length, {fields}]"
            raise _core.UsageError(f"[{operation}] expected {expected}, got {list(array.shape)}")
        return array

    def _prompt_of(self, prompt) -> np.ndarray:
        if prompt is None:
            return np.empty(0, np.int32)
        if self.image is None or not isinstance(prompt, np.ndarray) or prompt.dtype != np.uint8 or prompt.ndim < 2:
            return self._tokens_of("prompt", prompt)
        _, width, channels = self.image
        row = (width,) if channels == 1 else (width, channels)
        if prompt.shape[1:] != row:
            expected = ", ".join(map(str, row))
            raise _core.UsageError(f"[prompt] expected pixels [rows, {expected}], got {list(prompt.shape)}")
        return (prompt.reshape(-1).astype(np.int32) * self.vocabulary) // 256

    def _text_of(self, tokenizer: Tokenizer, tokens: np.ndarray, prompt: Tokens | None) -> str:
        """The text of generated tokens, which begins with a prompt of text as it was given, up to the first end."""
        given = len(self._prompt_of(prompt))
        ends = given + np.flatnonzero(tokens[given:] == tokenizer.end)
        tokens = tokens[: ends[0]] if len(ends) else tokens
        if not isinstance(prompt, str):
            return tokenizer.decode(tokens)
        stream = TextStream(tokenizer, tokens[:given])
        return prompt + "".join(stream.add(token) for token in tokens[given:]) + stream.finish()

    def _total(self, operation: str, given: int, length) -> int:
        """Tokens of a whole example."""
        if self.image is not None:
            if length is not None:
                raise _core.UsageError(f"[{operation}] expected length for models of text and tokens, got a model of pictures")
            if given > self.length:
                raise _core.UsageError(f"[{operation}] expected a prompt of at most {self.length} tokens, got {given}")
            return self.length
        bounded = self._config["model"]["positions"] == "learned"
        if length is None:
            wanted = max(self.length - given, 1) if bounded else self.length
        else:
            wanted = whole(operation, "length", length)
        if wanted < 1:
            raise _core.UsageError(f"[{operation}] expected length of at least 1, got {wanted}")
        if bounded and given + wanted > self.length:
            raise _core.UsageError(
                f"[{operation}] expected at most {self.length} tokens, the model's learned positions, got {given} of what comes "
                f"before and {wanted} to draw"
            )
        return given + wanted

    def _batch_of(self, operation: str, tokens):
        """Tokens [batch, length], int32, and whether they were so."""
        self._require_tokens(operation)
        if isinstance(tokens, (str, bytes)):
            return self._tokens_of(operation, tokens)[None], False
        array = integers_of(operation, "tokens", tokens, np.int32)
        if array.ndim not in (1, 2):
            raise _core.UsageError(f"[{operation}] expected tokens [length] or [batch, length], got {list(array.shape)}")
        if not array.size:
            raise _core.UsageError(f"[{operation}] expected a batch and a length of at least 1, got {list(array.shape)}")
        return (array, True) if array.ndim == 2 else (array[None], False)


def _are_texts(tokens) -> bool:
    """Whether this is a sequence of texts: a list, an array or a column of a table."""
    if isinstance(tokens, (str, bytes)) or not (isinstance(tokens, (list, tuple)) or getattr(tokens, "ndim", 0) == 1):
        return False
    return isinstance(next(iter(tokens), None), (str, bytes))


def _lengths(operation, key_lengths):
    if key_lengths is None:
        return None
    lengths = integers_of(operation, "key_lengths", key_lengths, np.int64).reshape(-1)
    if len(lengths) == 0:
        raise _core.UsageError(f"[{operation}] expected the key_lengths of each entry, got none")
    return lengths


def load(folder: Path, settings: Settings | None = None) -> Model:
    """Loads a model: a folder with config.json and model.safetensors, such as that of a training run.

    Parameters
    ----------
    folder : path
    settings : mapping, optional
        Values in place of those of the configuration: ``{"attention.family": "softmax"}``. The weights must still fit.

    Returns
    -------
    linnet.Model

    Raises
    ------
    linnet.Error
        Naming the file and the fault.
    """
    return Model(_core.Model.load(folder_of("load", folder), assignments_of(settings)))


def random_model(config: Config, seed: int = 0, settings: Settings | None = None) -> Model:
    """A model with the random weights from which training starts.

    Parameters
    ----------
    config : mapping, path or name
        As in `linnet.configuration`, with what data would decide: model.length and model.vocabulary are required, the latter 256
        where it is missing, the largest of model.fields, or 0 for real numbers (model.columns) alone. Classes and picture size
        are those that it names. A shipped configuration leaves them out.
    seed : int
    settings : mapping, optional
    """
    tables = configuration(config, settings)
    complete_described("random_model", tables)
    own = {name: tables[name] for name in ("model", "attention", "image") if name in tables}
    return Model(_core.Model.random(json_of(own), seed_of("random_model", seed)))
