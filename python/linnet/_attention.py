"""Attention on NumPy arrays."""

from __future__ import annotations

import functools
import weakref
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias, Unpack

import numpy as np

from . import _core
from ._arguments import array_of, context_of, floats_of, real, seed_of, whole, wholes, with_rows
from ._copies import not_copied
from ._types import ArrayLike, AttentionArguments, AttentionOptions, CallArguments, Indices, MaskLike, Numbers, overload

_FLOAT32, _FLOAT64 = np.dtype(np.float32), np.dtype(np.float64)
_LAYOUTS = {"bnhd": (0, 1, 2, 3), "bhnd": (0, 2, 1, 3)}


class Gradients(NamedTuple):
    """Gradients of the inputs of an attention, each of the shape of its input; None where the input was not given.

    `state` is that of the initial state, float32 [slots, floats], `State.gradient_floats` numbers a slot: of the linear family
    S [heads, features, value dim], then z [heads, features]; of softmax keys [heads, tokens, dim], then values.
    """

    q: np.ndarray
    k: np.ndarray
    v: np.ndarray
    decay: np.ndarray | None = None
    key_projection: np.ndarray | None = None
    value_projection: np.ndarray | None = None
    state: np.ndarray | None = None


def _sequence_view(operation, name, value, layout):
    """The array as [batch, length, heads, dim], without a copy where the last axis is contiguous."""
    array = array_of(operation, name, value)
    if array.ndim != 4:
        axes = "[batch, length, heads, dim]" if layout == "bnhd" else "[batch, heads, length, dim]"
        raise _core.UsageError(f"[{operation}] expected {name} {axes}, got {list(array.shape)}")
    return with_rows(array).transpose(_LAYOUTS[layout])


def _element_type(operation, arrays):
    """The dtype, float32, bfloat16 or float64, which all of the arrays must have."""
    first = next(iter(arrays.values())).dtype
    for name, array in arrays.items():
        dtype = array.dtype
        if dtype != _FLOAT32 and dtype != _FLOAT64 and dtype.name != "bfloat16":
            raise _core.ArgumentTypeError(f"[{operation}] expected {name} of float32, bfloat16 or float64, got {dtype}")
    if any(array.dtype != first for array in arrays.values()):
        found = ", ".join(f"{name} of {array.dtype}" for name, array in arrays.items())
        raise _core.ArgumentTypeError(f"[{operation}] expected arrays of one element type, got {found}")
    return first


def _memory(array):
    """What the C++ module takes: the array itself, or for bfloat16, which NumPy has no buffers of, its memory."""
    if array is None or array.dtype == _FLOAT32:
        return array
    address = array.__array_interface__["data"][0]
    strides = [stride // array.itemsize for stride in array.strides]
    return _core.Array(address, "bf16", list(array.shape), strides, array.flags.writeable)


def _new(shape, dtype, layout):
    """An array of `shape` [batch, length, heads, dim] that is dense in its layout."""
    order = _LAYOUTS[layout]
    return np.empty([shape[axis] for axis in order], dtype).transpose(order)


def mask_of(operation, mask) -> _core.Mask:
    """A mask from an object of linnet.Mask, from "full" or "causal", from None (full) or from a boolean array."""
    if isinstance(mask, _core.Mask):
        return mask
    if mask is None or (isinstance(mask, str) and mask == "full"):
        return _core.Mask.full()
    if isinstance(mask, str) and mask == "causal":
        return _core.Mask.causal()
    plain = isinstance(mask, np.ndarray) and not isinstance(mask, np.ma.MaskedArray)
    if plain and mask.dtype in (np.bool_, np.uint8) and mask.ndim in (2, 3):
        matrix = np.ascontiguousarray(mask if mask.ndim == 3 else mask[None])
        return _core.Mask.boolean(matrix.view(np.uint8))
    found = repr(mask) if isinstance(mask, str) else type(mask).__name__
    raise _core.ArgumentTypeError(
        f"[{operation}] expected a linnet.Mask, 'full', 'causal' or a boolean array [queries, keys], got {found}"
    )


@not_copied("state", "save and restore for a state in a file")
class State:
    """The state of the recurrent form, float32: one slot for each batch entry or stream.

    A slot of the linear family has a fixed size; softmax keeps every key and value. `Attention.state` makes an empty one,
    `attention` with ``return_state=True`` that after the last key. It fits every attention with the options of the one that made it.
    """

    __slots__ = ("_attention", "_core", "_owner")

    def __init__(self, core: _core.State, attention: _core.Attention, owner: Attention):
        self._core = core
        self._attention = attention
        self._owner = owner

    def __repr__(self) -> str:
        return f"<linnet.State: {self.slots} slots, {self._owner.family}>"

    def __copy__(self) -> State:
        return self.clone()

    def __deepcopy__(self, memo: Any) -> State:
        return self.clone()

    @property
    def slots(self) -> int:
        """Number of slots."""
        return self._core.slots

    def position(self, slot: int = 0) -> int:
        """Tokens that a slot has seen."""
        return self._core.position(whole("state", "slot", slot))

    def bytes(self, slot: int = 0) -> int:
        """Bytes that the slot's tokens need."""
        return self._core.bytes(whole("state", "slot", slot))

    def gradient_floats(self, slot: int = 0) -> int:
        """Numbers of the slot's gradient."""
        return self._core.gradient_floats(whole("state", "slot", slot))

    def reset(self, slot: int = 0) -> None:
        """Clears the slot for a new stream."""
        self._core.reset(whole("state", "slot", slot))

    def fork(self, slot: int, source: int) -> None:
        """Makes slot `slot` a copy of slot `source`."""
        self._core.copy(whole("state", "slot", slot), whole("state", "source", source))

    def clone(self) -> State:
        """A copy of all slots."""
        return State(self._core.clone(), self._attention, self._owner)

    def save(self, slot: int = 0) -> np.ndarray:
        """The slot's numbers, float32: for the linear family S [heads, features, value dim], then z [heads, features], and with
        compensated sums both once more. ``linnet/attention.h`` (State) describes all layouts."""
        return self._core.save(whole("state", "slot", slot))

    def restore(self, numbers: Numbers, position: int, slot: int = 0) -> None:
        """Reads what `save` wrote; `position` is the number of tokens that it stands for."""
        values = floats_of("state", "numbers", numbers, np.float32).reshape(-1)
        self._core.restore(whole("state", "slot", slot), values, whole("state", "position", position))


class Backward(Protocol):
    """The function of the gradients of a call of `linnet.attention`."""

    def __call__(self, grad_out: ArrayLike, grad_state: Numbers | None = None) -> Gradients: ...


Results: TypeAlias = (
    np.ndarray | tuple[np.ndarray, State] | tuple[np.ndarray, Backward] | tuple[np.ndarray, State, Backward]
)


@not_copied("attention", "a new linnet.Attention with the same options")
class Attention:
    """An attention family with its options.

    Parameters
    ----------
    family : str
        One of ``linnet.families()``: linear, softmax, kernel, linformer, lsh, local, strided.
    feature_map : str or linnet.FeatureMap
        Of the linear family: a name of ``linnet.feature_maps()``, or an object of ``linnet.feature_map``. A random map that is
        given by name has its default number of features and the seed `seed`.
    similarity : str or linnet.Similarity
        Of the kernel family.
    normalise : {"sum", "none"}
        Whether the linear and the kernel family divide by their denominator.
    epsilon : float
        Added to that denominator.
    compensated : bool
        Whether states of the linear family collect the rounding errors of their sums.
    scale : float
        Factor of q·k in softmax, linformer, lsh, local and strided; 0 stands for 1/sqrt(dim).
    cache : {"f32", "bf16"}
        Type of the keys and values that states of the softmax family keep; bf16 takes half the memory.
    left, right : int
        Of the local family: query i sees the keys i - left ... i + right.
    pattern : {"strided", "fixed"}
        Of the strided family.
    stride, summary : int
        Of the strided family, at least 0 and 1; stride 0 stands for the square root of the length, rounded up to a multiple of
        32; of every block `fixed` keeps `summary` tokens.
    buckets, chunk, rounds : int
        Of the lsh family: buckets of a hash, an even number up to 65,536 or 1 (0: about one per chunk), tokens of a chunk, at
        least 1, and rounds of hashing, 1 ... 64.
    seed : int
        Of lsh's rotations and of a random feature map that is given by name.
    layer : int
        Part of the seed of lsh and of random feature maps.

    Raises
    ------
    linnet.UsageError
        For values beyond these and unknown names.
    linnet.ArgumentTypeError
        For values of another type.

    Source: Katharopoulos et al. 2020, "Transformers are RNNs", for the linear family; docs/families.md for the others.
    """

    def __init__(
        self,
        family: str = "linear",
        *,
        feature_map: str | _core.FeatureMap = "elu",
        similarity: str | _core.Similarity = "exponential",
        normalise: str = "sum",
        epsilon: float = 1e-6,
        compensated: bool = True,
        scale: float = 0.0,
        cache: str = "f32",
        left: int = 128,
        right: int = 0,
        pattern: str = "strided",
        stride: int = 0,
        summary: int = 8,
        buckets: int = 0,
        chunk: int = 64,
        rounds: int = 1,
        seed: int = 0,
        layer: int = 0,
    ):
        for name, value in {"family": family, "normalise": normalise, "cache": cache, "pattern": pattern}.items():
            if not isinstance(value, str):
                raise _core.ArgumentTypeError(f"[attention] expected {name} as text, got {type(value).__name__}")
        self.family = family
        self._feature_map = feature_map
        self._seed = seed_of("attention", seed)
        self._layer = whole("attention", "layer", layer)
        if not 0 <= self._layer < 2**31:
            raise _core.UsageError(f"[attention] expected a layer of at least 0, got {layer}")
        named = similarity
        if isinstance(similarity, str):
            similarity = _core.similarity(similarity)
        elif not isinstance(similarity, _core.Similarity):
            raise _core.ArgumentTypeError(
                f"[attention] expected similarity as text or a linnet.Similarity, got {type(similarity).__name__}"
            )
        self._options: dict[str, Any] = {
            "similarity": similarity,
            "normalise": normalise,
            "epsilon": real("attention", "epsilon", epsilon),
            "compensated": bool(compensated),
            "scale": real("attention", "scale", scale),
            "cache": cache,
            "layer": self._layer,
            "left": whole("attention", "left", left),
            "right": whole("attention", "right", right),
            "pattern": pattern,
            "stride": whole("attention", "stride", stride),
            "summary": whole("attention", "summary", summary),
            "buckets": whole("attention", "buckets", buckets),
            "chunk": whole("attention", "chunk", chunk),
            "rounds": whole("attention", "rounds", rounds),
            "seed": self._seed,
        }
        self._of_head_dim: dict[int, _core.Attention] = {}
        random = {row["name"] for row in _core.feature_maps() if row["random"]}
        self._needs_head_dim = isinstance(feature_map, str) and feature_map in random
        self._core_of(1 if not self._needs_head_dim else 16)  # refuses options that cannot be
        with np.errstate(over="ignore"):
            numbers = {name: float(np.float32(self._options[name])) for name in ("epsilon", "scale")}  # as the library keeps them
        self._key = (family, feature_map, *{**self._options, **numbers, "similarity": named}.values())

    def __repr__(self) -> str:
        chosen = {"linear": self._feature_map, "kernel": self._options["similarity"]}.get(self.family)
        name = "" if chosen is None else f", {getattr(chosen, 'name', chosen)}"
        return f"<linnet.Attention: {self.family}{name}>"

    def _core_of(self, head_dim: int) -> _core.Attention:
        """The C++ object for heads of that size: one for all sizes, but for a random map that is given by name."""
        key = head_dim if self._needs_head_dim else 0
        found = self._of_head_dim.get(key)
        if found is None:
            chosen = self._feature_map
            if isinstance(chosen, str):
                chosen = _core.feature_map(chosen, head_dim=key, seed=self._seed, layer=self._layer)
            elif not isinstance(chosen, _core.FeatureMap):
                raise _core.ArgumentTypeError(
                    f"[attention] expected feature_map as text or a linnet.FeatureMap, got {type(chosen).__name__}"
                )
            options = _core.AttentionOptions.make(self.family, chosen, **self._options)
            found = self._of_head_dim.setdefault(key, _core.Attention(options))
        return found

    def _core_beside(self, state: State, head_dim: int) -> _core.Attention:
        """The same, that of the state where the options are equal."""
        owner = state._owner if state._owner._key == self._key else self
        return owner._core_of(max(head_dim, 1))

    def state(self, slots: int, heads: int, head_dim: int, value_dim: int | None = None, *, capacity: int = 0) -> State:
        """An empty state of `slots` slots; `capacity` tokens are reserved where memory grows with the tokens."""
        sizes = {"slots": slots, "heads": heads, "head_dim": head_dim, "capacity": capacity}
        sizes["value_dim"] = head_dim if value_dim is None else value_dim
        sizes = {name: whole("state", name, value) for name, value in sizes.items()}
        for name, value in sizes.items():
            if value < (0 if name == "capacity" else 1):
                raise _core.UsageError(f"[state] expected {name} of at least {0 if name == 'capacity' else 1}, got {value}")
        core = self._core_of(sizes["head_dim"])
        return State(core.make_state(**sizes), core, self)

    @overload
    def __call__(
        self,
        q: ArrayLike,
        k: ArrayLike,
        v: ArrayLike,
        *,
        return_state: Literal[False] = False,
        gradients: Literal[False] = False,
        **arguments: Unpack[CallArguments],
    ) -> np.ndarray: ...
    @overload
    def __call__(
        self,
        q: ArrayLike,
        k: ArrayLike,
        v: ArrayLike,
        *,
        return_state: Literal[True],
        gradients: Literal[False] = False,
        **arguments: Unpack[CallArguments],
    ) -> tuple[np.ndarray, State]: ...
    @overload
    def __call__(
        self,
        q: ArrayLike,
        k: ArrayLike,
        v: ArrayLike,
        *,
        return_state: Literal[False] = False,
        gradients: Literal[True],
        **arguments: Unpack[CallArguments],
    ) -> tuple[np.ndarray, Backward]: ...
    @overload
    def __call__(
        self,
        q: ArrayLike,
        k: ArrayLike,
        v: ArrayLike,
        *,
        return_state: Literal[True],
        gradients: Literal[True],
        **arguments: Unpack[CallArguments],
    ) -> tuple[np.ndarray, State, Backward]: ...
    @overload
    def __call__(
        self,
        q: ArrayLike,
        k: ArrayLike,
        v: ArrayLike,
        *,
        return_state: bool = False,
        gradients: bool = False,
        **arguments: Unpack[CallArguments],
    ) -> Results: ...
    def __call__(
        self,
        q: ArrayLike,
        k: ArrayLike,
        v: ArrayLike,
        *,
        mask: MaskLike | None = None,
        decay: Numbers | None = None,
        state: State | None = None,
        return_state: bool = False,
        position: int = 0,
        key_projection: Numbers | None = None,
        value_projection: Numbers | None = None,
        layout: str = "bnhd",
        gradients: bool = False,
        context: _core.Context | None = None,
    ) -> Results:
        """The parallel form; the arguments and results are those of `linnet.attention`."""
        operation = "attention"
        if layout not in _LAYOUTS:
            raise _core.UsageError(f"[{operation}] expected layout 'bnhd' or 'bhnd', got {layout!r}")
        same = k is q
        q, v = (_sequence_view(operation, name, value, layout) for name, value in (("q", q), ("v", v)))
        k = q if same else _sequence_view(operation, "k", k, layout)
        kind = _element_type(operation, {"q": q, "k": k, "v": v})
        kind_of_call, numbers = (_DoubleCall, np.float64) if kind == _FLOAT64 else (_Call, np.float32)
        call = kind_of_call(self, q, k, v, mask_of(operation, mask), layout, context_of(context))
        call.position = whole(operation, "position", position)
        call.decay = None if decay is None else floats_of(operation, "decay", decay, numbers)
        if self.family != "linformer" and not (key_projection is None and value_projection is None):
            raise _core.UsageError(f"[{operation}] expected projections with the family linformer alone, got some with {self.family}")
        if key_projection is not None:
            call.key_projection = floats_of(operation, "key_projection", key_projection, numbers)
        if value_projection is key_projection:
            call.value_projection = call.key_projection
        elif value_projection is not None:
            call.value_projection = floats_of(operation, "value_projection", value_projection, numbers)
        return call.run(state, return_state, gradients)

    def step(
        self,
        q: ArrayLike,
        k: ArrayLike,
        v: ArrayLike,
        state: State,
        *,
        slots: Indices | None = None,
        decay: Numbers | None = None,
        context: _core.Context | None = None,
    ) -> np.ndarray:
        """One token for each of n slots; the arguments are those of `linnet.attention_step`."""
        operation = "attention step"
        if not isinstance(state, State):
            raise _core.ArgumentTypeError(f"[{operation}] expected a linnet.State, got {type(state).__name__}")
        rows = {}
        for name, value in (("q", q), ("k", k), ("v", v)):
            array = array_of(operation, name, value)
            if array.ndim != 3:
                raise _core.UsageError(f"[{operation}] expected {name} [streams, heads, dim], got {list(array.shape)}")
            if array.dtype != np.float32:
                raise _core.ArgumentTypeError(f"[{operation}] expected {name} of float32, got {array.dtype}")
            rows[name] = with_rows(array)
        core = self._core_beside(state, rows["q"].shape[2])
        out = np.empty(rows["v"].shape, np.float32)
        if slots is None:
            chosen = list(range(state.slots))
        else:
            chosen = wholes(operation, "slot", slots)
        gamma = None if decay is None else floats_of(operation, "decay", decay, np.float32)
        core.step(context_of(context), out, rows["q"], rows["k"], rows["v"], state._core, chosen, gamma)
        return out


class _Call:
    """One forward, and the backward after it."""

    def __init__(self, attention, q, k, v, mask, layout, context):
        self.attention = attention
        self.core = attention._core_of(max(q.shape[3], 1))
        self.q, self.k, self.v, self.mask, self.layout, self.context = q, k, v, mask, layout, context
        self.position = 0
        self.decay = self.key_projection = self.value_projection = None
        self.out = self.normaliser = self.initial = None

    def _inputs(self):
        q = _memory(self.q)
        return q, q if self.k is self.q else _memory(self.k), _memory(self.v), self.mask

    def _options(self):
        return {
            "initial": self.initial,
            "position": self.position,
            "decay": self.decay,
            "key_projection": self.key_projection,
            "value_projection": self.value_projection,
        }

    def run(self, state, return_state, gradients):
        batch, length, heads, head_dim = self.q.shape
        value_dim = self.v.shape[3]
        if state is not None:
            if not isinstance(state, State):
                raise _core.ArgumentTypeError(f"[attention] expected a linnet.State, got {type(state).__name__}")
            self.core = self.attention._core_beside(state, head_dim)
            if state._attention is not self.core:
                raise _core.UsageError("[attention] expected a state of an attention with the same options, got another")
            self.initial = state._core.clone() if gradients else state._core
        self.out = _new((batch, length, heads, value_dim), self.v.dtype, self.layout)
        self.normaliser = np.empty((batch, length, heads), np.float32) if gradients else None
        final = self.core.make_state(max(batch, 1), heads, head_dim, value_dim) if return_state else None
        q, k, v, mask = self._inputs()
        self.core.forward(
            self.context, _memory(self.out), q, k, v, mask, normaliser=self.normaliser, final=final, **self._options()
        )
        result = [self._result(gradients)]
        if return_state:
            result.append(State(final, self.core, self.attention))
        if gradients:
            result.append(self.backward)
        return result[0] if len(result) == 1 else tuple(result)

    def _result(self, gradients):
        """The output, which must not change before the gradients are computed from it."""
        out = self._shown(self.out)
        if gradients:
            out.flags.writeable = False
        return out

    def _shown(self, array):
        """The array in the layout of the caller."""
        return array.transpose(_LAYOUTS[self.layout])

    def backward(self, grad_out, grad_state=None) -> Gradients:
        """Gradients of a loss from `grad_out`, of the shape of the output, and `grad_state` [batch, floats], the gradient of the
        final state."""
        operation = "attention gradients"
        upper = _sequence_view(operation, "grad_out", grad_out, self.layout)
        _element_type(operation, {"q": self.q, "grad_out": upper})
        grads = [_new(array.shape, array.dtype, self.layout) for array in (self.q, self.k, self.v)]
        extra = {}
        for name in ("decay", "key_projection", "value_projection"):
            given = getattr(self, name)
            extra[name] = None if given is None else np.zeros_like(given)
        grad_initial = None
        if self.initial is not None:
            slots = self.initial.slots
            floats = max((self.initial.gradient_floats(slot) for slot in range(slots)), default=0)
            grad_initial = np.zeros((slots, floats), np.float32)
        grad_final = None if grad_state is None else floats_of(operation, "grad_state", grad_state, np.float32)
        q, k, v, mask = self._inputs()
        self.core.backward(
            self.context,
            *(_memory(array) for array in grads),
            _memory(upper),
            q,
            k,
            v,
            mask,
            _memory(self.out),
            self.normaliser,
            grad_decay=extra["decay"],
            grad_key_projection=extra["key_projection"],
            grad_value_projection=extra["value_projection"],
            grad_initial=grad_initial,
            grad_final=grad_final,
            **self._options(),
        )
        return Gradients._make([*(self._shown(array) for array in grads), *extra.values(), grad_initial])


class _DoubleCall(_Call):
    """The same for float64: the library's reference, in double precision and quadratic time."""

    def _dense(self):
        q = np.ascontiguousarray(self.q)
        k = q if self.k is self.q else np.ascontiguousarray(self.k)
        return q, k, np.ascontiguousarray(self.v), self.mask, self.decay, self.key_projection, self.value_projection

    def run(self, state, return_state, gradients):
        if state is not None or return_state:
            raise _core.ArgumentTypeError("[attention] expected float32 or bfloat16 with a state, got float64")
        if self.position:
            raise _core.UsageError(f"[attention] expected position 0 for float64, got {self.position}")
        self.out = np.empty((*self.q.shape[:3], self.v.shape[3]))
        _core.reference_forward(self.core.options, self.out, *self._dense())
        return (self._result(gradients), self.backward) if gradients else self._result(gradients)

    def backward(self, grad_out, grad_state=None) -> Gradients:
        operation = "attention gradients"
        upper = np.ascontiguousarray(_sequence_view(operation, "grad_out", grad_out, self.layout))
        _element_type(operation, {"q": self.q, "grad_out": upper})
        if grad_state is not None:
            raise _core.ArgumentTypeError(f"[{operation}] expected float32 or bfloat16 with a state, got float64")
        grads = [np.zeros(array.shape) for array in (self.q, self.k, self.v)]
        options = (self.decay, self.key_projection, self.value_projection)
        extra = [None if array is None else np.zeros_like(array) for array in options]
        arguments: list[Any] = [*grads, upper, *self._dense(), *extra]
        _core.reference_backward(self.core.options, *arguments)
        return Gradients(*(self._shown(array) for array in grads), *extra)


_living: weakref.WeakValueDictionary[tuple[Any, ...], Attention] = weakref.WeakValueDictionary()


def _living_attention(options) -> Attention:
    made = Attention(**options)
    return _living.setdefault(made._key, made)


@functools.lru_cache(maxsize=256)
def _recent_attention(given) -> Attention:
    return _living_attention({name: value for name, _, value in given})


def _attention_of(options) -> Attention:
    """One object for equal options, so that states fit. Those of the last calls are kept, and those that a state belongs to."""
    given = tuple((name, type(value), value) for name, value in sorted(options.items(), key=lambda item: item[0]))
    try:
        hash(given)
    except TypeError:
        return _living_attention(options)
    return _recent_attention(given)


@overload
def attention(
    q: ArrayLike,
    k: ArrayLike,
    v: ArrayLike,
    *,
    return_state: Literal[False] = False,
    gradients: Literal[False] = False,
    **arguments: Unpack[AttentionArguments],
) -> np.ndarray: ...
@overload
def attention(
    q: ArrayLike,
    k: ArrayLike,
    v: ArrayLike,
    *,
    return_state: Literal[True],
    gradients: Literal[False] = False,
    **arguments: Unpack[AttentionArguments],
) -> tuple[np.ndarray, State]: ...
@overload
def attention(
    q: ArrayLike,
    k: ArrayLike,
    v: ArrayLike,
    *,
    return_state: Literal[False] = False,
    gradients: Literal[True],
    **arguments: Unpack[AttentionArguments],
) -> tuple[np.ndarray, Backward]: ...
@overload
def attention(
    q: ArrayLike,
    k: ArrayLike,
    v: ArrayLike,
    *,
    return_state: Literal[True],
    gradients: Literal[True],
    **arguments: Unpack[AttentionArguments],
) -> tuple[np.ndarray, State, Backward]: ...
@overload
def attention(
    q: ArrayLike,
    k: ArrayLike,
    v: ArrayLike,
    *,
    return_state: bool = False,
    gradients: bool = False,
    **arguments: Unpack[AttentionArguments],
) -> Results: ...
def attention(
    q: ArrayLike,
    k: ArrayLike,
    v: ArrayLike,
    *,
    mask: MaskLike | None = None,
    decay: Numbers | None = None,
    state: State | None = None,
    return_state: bool = False,
    position: int = 0,
    key_projection: Numbers | None = None,
    value_projection: Numbers | None = None,
    layout: str = "bnhd",
    gradients: bool = False,
    context: _core.Context | None = None,
    **options: Unpack[AttentionOptions],
) -> Results:
    """Attention in its parallel form.

    Parameters
    ----------
    q : array [batch, length, heads, dim]
        Queries, float32 or bfloat16 (of ml_dtypes), or float64, for which quadratic code in double precision runs, without
        states. Arrays whose last axis is contiguous are not copied.
    k, v : array [batch, keys, heads, dim], [batch, keys, heads, value dim]
        Keys and values, of the type of `q`. For lsh `k` must be `q` itself.
    mask : linnet.Mask, "full", "causal", None or a boolean array [queries, keys] or [batch, queries, keys]
        Which keys a query sees; None stands for all of them. A query that sees no key gives zeros.
    decay : array [heads], optional
        gamma, 0 < gamma <= 1: the weight of a token falls by this factor with each later one (Sun et al. 2023, equation 6). Only
        for the linear family with a causal mask.
    state : linnet.State, optional
        What the queries continue, one slot a batch entry. It is not changed.
    return_state : bool
        Whether the state after the last key is a result. Only for causal and prefix masks.
    position : int
        Position of the first query, which feature maps may use.
    key_projection, value_projection : array [heads or 1, rank, keys], optional
        E and F of linformer (Wang et al. 2020, equation 7).
    layout : {"bnhd", "bhnd"}
        Order of the axes of q, k, v and of the result: [batch, length, heads, dim] or [batch, heads, length, dim].
    gradients : bool
        Whether a function for the gradients is a result.
    context : linnet.Context, optional
        What computes; without one, a context of the calling thread.
    **options
        Those of `linnet.Attention`: family, feature_map, scale and so on.

    Returns
    -------
    out : array [batch, length, heads, value dim]
        Read-only with `gradients`, which are computed from it: copy it to change it.
    state : linnet.State
        With `return_state`.
    backward : function
        With `gradients`: backward(grad_out, grad_state=None) returns `linnet.Gradients`. q, k, v, decay and the
        projections must not have changed.

    Raises
    ------
    linnet.UsageError
        For shapes, options and masks that do not fit.
    linnet.ArgumentTypeError
        For elements and objects of another type.
    """
    return _attention_of(options)(
        q,
        k,
        v,
        mask=mask,
        decay=decay,
        state=state,
        return_state=return_state,
        position=position,
        key_projection=key_projection,
        value_projection=value_projection,
        layout=layout,
        gradients=gradients,
        context=context,
    )


def attention_gradients(
    q: ArrayLike,
    k: ArrayLike,
    v: ArrayLike,
    grad_out: ArrayLike,
    *,
    grad_state: Numbers | None = None,
    **arguments: Unpack[AttentionArguments],
) -> Gradients:
    """Gradients of a loss with respect to the inputs of `linnet.attention`, from that of its output.

    Parameters
    ----------
    q, k, v, **arguments
        Those of `linnet.attention`.
    grad_out : array
        Of the shape of the output.
    grad_state : array [batch, floats], optional
        The gradient of the final state, in the layout of `Gradients.state`: `State.gradient_floats` numbers a slot.

    Returns
    -------
    linnet.Gradients
    """
    for name in ("gradients", "return_state"):
        if name in arguments:
            raise _core.UsageError(f"[attention gradients] expected no argument {name}, got one")
    _, backward = attention(q, k, v, gradients=True, **arguments)
    return backward(grad_out, grad_state)


def attention_step(
    q: ArrayLike,
    k: ArrayLike,
    v: ArrayLike,
    state: State,
    *,
    slots: Indices | None = None,
    decay: Numbers | None = None,
    context: _core.Context | None = None,
    **options: Unpack[AttentionOptions],
) -> np.ndarray:
    """One token for each of several streams: the recurrent form, in constant time for the linear family.

    Parameters
    ----------
    q, k, v : array [n, heads, dim], [n, heads, dim], [n, heads, value dim]
        float32; row i belongs to slot ``slots[i]``.
    state : linnet.State
        Changed in place.
    slots : sequence of int, optional
        Each at most once; all slots of the state without it.
    decay : array [heads], optional
    context, **options
        As in `linnet.attention`; the options must be those that the state was made with.

    Returns
    -------
    array [n, heads, value dim], float32
    """
    return _attention_of(options).step(q, k, v, state, slots=slots, decay=decay, context=context)
