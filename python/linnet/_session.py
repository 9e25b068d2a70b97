"""Many streams of one model, token by token."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal, SupportsIndex, TypeAlias

import numpy as np

from . import _core
from ._arguments import integers_of, real, seed_of, threads_of, whole, wholes
from ._streams import Streams, core_of_model
from ._types import Indices, Integers, Tokens, overload

if TYPE_CHECKING:
    from ._model import Model

# Takes a stream, a field and its logits.
LogitsFunction: TypeAlias = Callable[[int, int, np.ndarray], None]


class Session(Streams):
    """Streams of one model, each at its own position with its own seed.

    A stream's tokens do not depend on the streams beside it. Calls from several Python threads take turns; while one computes,
    other Python code runs.

    Parameters
    ----------
    model : linnet.Model
    streams : int
        Streams, all at their beginning, with label 0 where the model has classes and their index as seed.
    capacity : int
        Tokens per stream to reserve memory for, in families whose memory grows (softmax).
    cache : bool
        False computes every token from the whole sequence again.
    threads : int
        Threads of the session, the caller's included; 0 stands for one per processor.

    Raises
    ------
    linnet.UsageError
        For an encoder, and for a model whose steps are real numbers: see `linnet.NumberSession`.
    linnet.Error
        For a family without a recurrent form.
    """

    def __init__(self, model: Model, streams: int = 1, *, capacity: int = 0, cache: bool = True, threads: int = 0):
        core = core_of_model("session", model)
        self.model = model
        self._core: _core.Session = _core.Session(
            core,
            whole("session", "streams", streams),
            whole("session", "capacity", capacity),
            bool(cache),
            threads_of("session", threads),
        )

    def begin(
        self,
        stream: int = 0,
        label: int | None = None,
        *,
        temperature: float = 1.0,
        top_k: int | None = None,
        top_p: float = 1.0,
        seed: int = 0,
        source: Tokens | None = None,
    ) -> None:
        """Starts a stream anew.

        Parameters
        ----------
        stream : int
        label : int, optional
            The class to draw; 0 without it where the model has classes.
        temperature : float
            Below 1: more probable tokens; 0: the most probable one.
        top_k : int, optional
            Only the k most probable tokens.
        top_p : float
            Only the smallest set of tokens with this total probability.
        seed : int
            The draws depend on it and on the position alone, on every machine.
        source : array [n] of whole numbers, or text for sources of bytes, optional
            What an encoder–decoder model reads; required there before anything else is done with the stream.
        """
        self._core.begin(
            whole("begin", "stream", stream),
            self.model._label(label),
            real("begin", "temperature", temperature),
            None if top_k is None else whole("begin", "top_k", top_k),
            real("begin", "top_p", top_p),
            seed_of("begin", seed),
            None if source is None else self.model._source_of("begin", source),
        )

    @overload
    def prefill(self, stream: SupportsIndex, tokens: Tokens) -> None: ...
    @overload
    def prefill(self, stream: Sequence[SupportsIndex] | np.ndarray, tokens: Iterable[Tokens]) -> None: ...
    def prefill(self, stream: Any, tokens: Any) -> None:
        """Appends given tokens in the parallel form: tokens [n], or text for a model of text.

        With a sequence of streams, `tokens` are as many prompts, and streams at the same position pass through the layers
        together. All streams are unchanged where it fails.
        """
        if np.ndim(stream) == 0:
            self._core.prefill(whole("prefill", "stream", stream), self.model._tokens_of("prefill", tokens))
            return
        prompts = [self.model._tokens_of("prefill", prompt) for prompt in tokens]
        self._core.prefill_streams(wholes("prefill", "stream", stream), prompts)

    @overload
    def step(
        self,
        streams: Indices | None = None,
        *,
        process_logits: LogitsFunction | None = None,
        return_log_probabilities: Literal[False] = False,
    ) -> np.ndarray: ...
    @overload
    def step(
        self,
        streams: Indices | None = None,
        *,
        process_logits: LogitsFunction | None = None,
        return_log_probabilities: Literal[True],
    ) -> tuple[np.ndarray, np.ndarray]: ...
    @overload
    def step(
        self,
        streams: Indices | None = None,
        *,
        process_logits: LogitsFunction | None = None,
        return_log_probabilities: bool = False,
    ) -> np.ndarray | tuple[np.ndarray, np.ndarray]: ...
    def step(
        self,
        streams: Indices | None = None,
        *,
        process_logits: LogitsFunction | None = None,
        return_log_probabilities: bool = False,
    ) -> np.ndarray | tuple[np.ndarray, np.ndarray]:
        """Draws the next token of each of `streams` (all of them without it) and appends it.

        Parameters
        ----------
        streams : sequence of int, optional
        process_logits : function of (stream, field, logits), optional
            Changes the logits [vocabulary], float32, of a stream's next token in place, before the stream's sampling options do
            their part; -inf bans a token. It is called for one stream and field after another, from any thread, and may not use
            the session.
        return_log_probabilities : bool
            Also return the natural logarithm of the probability of each token. It is the model's own, as in `probabilities`:
            before `process_logits`, with temperature 1 and without top-k and top-p.

        Returns
        -------
        array [streams], int32, with several fields [streams, fields]; with `return_log_probabilities` a pair of it and of an
        array of the same shape, float32

        Raises
        ------
        linnet.Error
            Where the prediction of a stream is not finite, as after an overflow, and what `process_logits` raises, or
            linnet.UsageError where it leaves no token possible. That stream is to begin anew or to be restored; the others have
            moved, as `position` tells.
        """
        chosen = None if streams is None else wholes("step", "stream", streams)
        count, fields = self.streams if chosen is None else len(chosen), len(self.model.fields)
        drawn = np.empty(count if fields == 1 else (count, fields), np.int32)
        if process_logits is not None and not callable(process_logits):
            raise _core.ArgumentTypeError(
                f"[step] expected process_logits as a function, got {type(process_logits).__name__}"
            )
        if not return_log_probabilities:
            self._core.step(drawn, chosen, process_logits)
            return drawn
        log_probabilities = np.empty(drawn.shape, np.float32)
        self._core.step(drawn, chosen, process_logits, log_probabilities)
        return drawn, log_probabilities

    def set_sampling(
        self,
        stream: int = 0,
        *,
        temperature: float = 1.0,
        top_k: int | None = None,
        top_p: float = 1.0,
        seed: int = 0,
    ) -> None:
        """Changes how a stream's next tokens are drawn. As in `begin`; `sampling` gives what it had."""
        self._core.set_sampling(
            whole("set_sampling", "stream", stream),
            real("set_sampling", "temperature", temperature),
            None if top_k is None else whole("set_sampling", "top_k", top_k),
            real("set_sampling", "top_p", top_p),
            seed_of("set_sampling", seed),
        )

    def sampling(self, stream: int = 0) -> dict[str, Any]:
        """How a stream's tokens are drawn: `temperature`, `top_k`, `top_p` and `seed`, the arguments of `set_sampling`."""
        return self._core.sampling(whole("sampling", "stream", stream))

    def observe(self, tokens: Integers, streams: Indices | None = None) -> None:
        """Appends a given token to each of `streams` (all of them without it), in the recurrent form: tokens [streams],
        with several fields [streams, fields]."""
        chosen = None if streams is None else wholes("observe", "stream", streams)
        self._core.observe(integers_of("observe", "tokens", tokens, np.int32).reshape(-1), chosen)

    def logits(self, stream: int = 0) -> np.ndarray:
        """Logits [vocabulary], float32, of the stream's next token; of several fields those of the first one. The stream does not
        move."""
        return self._core.logits(whole("logits", "stream", stream))

    def probabilities(self, stream: int = 0) -> np.ndarray:
        """Probabilities [vocabulary], float32, of the same tokens as `logits`, with temperature 1 and without top-k and top-p. They
        add up to 1."""
        return self._core.probabilities(whole("probabilities", "stream", stream))

    def fork(self, stream: int, source: int, seed: int = 0) -> None:
        """Makes `stream` continue as `source` would, with its sampling but a seed of its own."""
        self._core.fork(whole("fork", "stream", stream), whole("fork", "source", source), seed_of("fork", seed))

    def resize(self, streams: int) -> None:
        """Changes the number of streams. Those with an index below it keep everything. All states are copied."""
        self._core.resize(whole("resize", "streams", streams))
