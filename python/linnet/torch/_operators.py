"""The operators of the library linnet in torch.library: what PyTorch's dispatcher, its autograd and its compiler see.

``linnet::attention`` and ``linnet::attention_backward`` are the parallel form, ``linnet::attention_step`` the recurrent one. The
functions of ``_functions`` check their arguments and call them. Tensors are [batch, length, heads, dim] with an innermost stride
of 1; other strides are free, so that a transposed [batch, heads, length, dim] needs no copy.
"""

from __future__ import annotations

import atexit
import functools
import os
import weakref

import torch
from torch.autograd import forward_ad

from .. import _core
from ._arguments import refuse, refuse_type

_FULL, _CAUSAL = _core.Mask.full(), _core.Mask.causal()

_contexts: dict[int, _core.Context] = {}
_parents: list = []


def _forget_contexts() -> None:
    # Threads do not survive a fork. The contexts of the parent stay reachable, so that nobody waits for their threads.
    _parents.append(dict(_contexts))
    _contexts.clear()


os.register_at_fork(after_in_child=_forget_contexts)


@atexit.register
def _drop_objects() -> None:
    # Before the interpreter takes the module of their classes apart.
    global _FULL, _CAUSAL
    _FULL = _CAUSAL = None
    _contexts.clear()
    _streams.clear()
    _attention_of.cache_clear()


def _context() -> _core.Context:
    """A context with as many threads as torch.get_num_threads()."""
    threads = torch.get_num_threads()
    found = _contexts.get(threads)
    if found is None:
        found = _contexts.setdefault(threads, _core.Context(threads))
    return found


def write_options(**options) -> str:
    """The options of an attention as the text that the operators take."""
    return ";".join([f"{name}={value}" for name, value in options.items()])


_WHOLE = {"seed", "layer", "features", "left", "right", "stride", "summary", "buckets", "chunk", "rounds"}
_REAL = {"epsilon", "scale", "alpha"}


def read_options(text: str) -> dict:
    """What `write_options` wrote, with the types of the options."""
    options = {}
    for entry in text.split(";"):
        name, _, value = entry.partition("=")
        options[name] = int(value) if name in _WHOLE else float(value) if name in _REAL else value
    return options


@functools.lru_cache(maxsize=1024)
def _attention_of(text: str, head_dim: int) -> _core.TensorAttention:
    """The attention of the C++ library with these options, for heads of `head_dim` numbers."""
    options = read_options(text)
    drawn = {name: options.pop(name) for name in ("features", "directions", "alpha") if name in options}
    name = options.pop("feature_map", None)
    if name is not None:
        drawn.update(seed=options.get("seed", 0), layer=options.get("layer", 0))
        options["feature_map"] = _core.feature_map(name, head_dim=head_dim, **drawn)
    if "similarity" in options:
        options["similarity"] = _core.similarity(options["similarity"])
    return _core.TensorAttention(_core.AttentionOptions.make(compensated=False, **options))


def is_log_scaled(feature_map: str) -> bool:
    """Whether a state of the map has two numbers per head for its log-scale."""
    return feature_map.startswith("favor") or feature_map == "random-exp"


def state_floats(options: dict, heads, head_dim, value_dim):
    """Numbers of a row of a state of the linear family."""
    features = options.get("features") or head_dim
    return heads * features * (value_dim + 1) + (2 * heads if is_log_scaled(options["feature_map"]) else 0)


def _mask(kind, left, right, bounds, key_lengths, segments, visible) -> _core.Mask:
    if kind == "full":
        mask = _FULL
    elif kind == "causal":
        mask = _CAUSAL
    elif kind == "prefix":
        mask = _core.Mask.prefix(bounds.tolist())
    elif kind == "window":
        mask = _core.Mask.window(left, right)
    elif kind == "intervals":
        mask = _core.Mask.intervals(*bounds.tolist())
    else:
        visible = visible.contiguous()
        _memory(visible)
        mask = _core.Mask.boolean(visible.view(torch.uint8).numpy())
    if key_lengths is not None:
        mask = mask.with_key_lengths(key_lengths.tolist())
    if segments is not None and (segments.dim() == 1 or len(segments)):  # a batch of 0 has no lists
        rows = segments.tolist()
        if segments.dim() == 2:  # shorter lists are padded with -1
            for row in rows:
                while row and row[-1] == -1:
                    row.pop()
        mask = mask.with_segments(rows)
    return mask


def _memory(tensor):
    if tensor is None:
        return None
    address, strides = tensor.data_ptr(), tensor.stride()
    if not address or strides[-1] != 1:
        _check_memory(tensor, address, strides)
    return address, tensor.shape, strides


def _check_memory(tensor, address, strides):
    if tensor.numel() == 0:
        return
    if not address:
        refuse("attention", "tensors whose elements are in memory", f"one {list(tensor.shape)} without memory")
    if tensor.shape[-1] > 1:
        refuse("attention", "tensors whose last axis is contiguous", f"strides {list(strides)}")


def _is_narrow(q, k, v, decay, key_projection, value_projection, state) -> bool:
    """Whether q, k and v are bfloat16 and not float32. Throws for other types, and for others of the remaining tensors."""
    dtype = q.dtype
    if not (dtype is k.dtype is v.dtype and (dtype is torch.float32 or dtype is torch.bfloat16)):
        refuse_type("attention", "q, k and v of float32 or of bfloat16", f"{dtype}, {k.dtype} and {v.dtype}")
    if not decay is key_projection is value_projection is state is None:
        for tensor in (decay, key_projection, value_projection, state):
            if tensor is not None and tensor.dtype is not torch.float32:
                refuse_type("attention", "decays, projections and states of float32", str(tensor.dtype))
    return dtype is torch.bfloat16


def _check_devices(operation, tensors):
    """Throws unless the tensors are all on the device of the first."""
    device = tensors[0].device
    for tensor in tensors:
        if tensor is not None and tensor.device != device:
            refuse(operation, f"all tensors on {device}, as q", f"one on {tensor.device}")


def _rows(tensor):
    """The tensor, or a copy whose innermost stride is 1: of one whose strides are PyTorch's choice."""
    if tensor is None or tensor.stride(-1) == 1 or tensor.shape[-1] <= 1:
        return tensor
    return tensor.contiguous()


def _new(like, shape, heads_first: bool):
    """A tensor of `shape` [batch, length, heads, dim] that is dense as it stands, or with heads before length."""
    if heads_first:
        return like.new_empty((shape[0], shape[2], shape[1], shape[3])).transpose(1, 2)
    return like.new_empty(shape)


_SCHEMA_MASK = "str mask, int left, int right, Tensor? bounds, Tensor? key_lengths, Tensor? segments, Tensor? visible"
_SCHEMA_EXTRA = "Tensor? decay, Tensor? key_projection, Tensor? value_projection, Tensor? initial"

library = torch.library.Library("linnet", "DEF")
_tags = (torch.Tag.needs_fixed_stride_order,)
library.define(
    f"attention(Tensor q, Tensor k, Tensor v, {_SCHEMA_EXTRA}, {_SCHEMA_MASK}, str options, bool heads_first, "
    "bool with_state) -> (Tensor, Tensor, Tensor)",
    tags=_tags,
)
library.define(
    f"attention_backward(Tensor grad_out, Tensor? grad_final, Tensor q, Tensor k, Tensor v, Tensor out, Tensor normaliser, "
    f"{_SCHEMA_EXTRA}, {_SCHEMA_MASK}, str options, bool heads_first) "
    "-> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)",
    tags=_tags,
)
library.define("attention_step(Tensor q, Tensor k, Tensor v, Tensor(a!) state, Tensor? decay, str options) -> Tensor", tags=_tags)


def _output(q, v, heads_first):
    batch, length, heads, _ = q.shape
    return _new(v, (batch, length, heads, v.shape[3]), heads_first)


def _empty_results(q, k, v, initial, options, heads_first, with_state):
    batch, length, heads, head_dim = q.shape
    value_dim = v.shape[3]
    out = _output(q, v, heads_first)
    normaliser = q.new_empty((batch, length, heads), dtype=torch.float32)
    floats = state_floats(read_options(options), heads, head_dim, value_dim) if with_state else 0
    return out, normaliser, q.new_empty((batch, floats) if with_state else (0,), dtype=torch.float32)


def _forward(
    q, k, v, decay, key_projection, value_projection, initial,
    mask, left, right, bounds, key_lengths, segments, visible, options, heads_first, with_state, results=None,
):  # fmt: skip
    """Fills `results`, of which the normaliser may be None, and by default new tensors."""
    narrow = _is_narrow(q, k, v, decay, key_projection, value_projection, initial)
    out, normaliser, final = results = results or _empty_results(q, k, v, initial, options, heads_first, with_state)
    query = _memory(q)
    _attention_of(options, q.shape[3]).forward(
        _context(),
        _mask(mask, left, right, bounds, key_lengths, segments, visible),
        narrow,
        _memory(out),
        query,
        query if k is q else _memory(k),
        _memory(v),
        _memory(normaliser),
        _memory(decay),
        _memory(key_projection),
        _memory(value_projection),
        _memory(initial),
        _memory(final) if with_state else None,
    )
    return results


def _forward_meta(
    q, k, v, decay, key_projection, value_projection, initial,
    mask, left, right, bounds, key_lengths, segments, visible, options, heads_first, with_state,
):  # fmt: skip
    _check_devices("attention", (q, k, v, decay, key_projection, value_projection, initial))
    return _empty_results(q, k, v, initial, options, heads_first, with_state)


def _empty_gradients(q, k, v, decay, key_projection, value_projection, initial, heads_first, absent=True):
    """Gradients to be filled; of an input that is not given an empty tensor, which operators return, or None without `absent`."""

    def optional(tensor):
        if tensor is None:
            return q.new_empty((0,), dtype=torch.float32) if absent else None
        return torch.zeros_like(tensor) if tensor is initial else torch.empty_like(tensor)

    grad_q, grad_k, grad_v = _new(q, q.shape, heads_first), _new(k, k.shape, heads_first), _new(v, v.shape, heads_first)
    if not absent and decay is key_projection is value_projection is initial is None:
        return grad_q, grad_k, grad_v, None, None, None, None
    return (grad_q, grad_k, grad_v, *(optional(tensor) for tensor in (decay, key_projection, value_projection, initial)))


def _backward(
    grad_out, grad_final, q, k, v, out, normaliser, decay, key_projection, value_projection, initial,
    mask, left, right, bounds, key_lengths, segments, visible, options, heads_first, absent=True,
):  # fmt: skip
    narrow = _is_narrow(q, k, v, decay, key_projection, value_projection, initial)
    if grad_out.layout is not torch.strided or (grad_final is not None and grad_final.layout is not torch.strided):
        refuse("attention gradients", "dense gradients of the results", str(grad_out.layout))
    if not (grad_out.dtype is out.dtype is q.dtype and normaliser.dtype is torch.float32):
        refuse_type(
            "attention gradients", f"the output and its gradient of {q.dtype}", f"{out.dtype} and {grad_out.dtype}"
        )
    if grad_final is not None and grad_final.dtype is not torch.float32:
        refuse_type("attention gradients", "a gradient of the state of float32", str(grad_final.dtype))
    gradients = _empty_gradients(q, k, v, decay, key_projection, value_projection, initial, heads_first, absent)
    extra = (decay, key_projection, value_projection, initial)
    if decay is key_projection is value_projection is initial is None:
        others = (None,) * 8
    else:
        others = [_memory(tensor) for tensor in extra]
        others += [None if tensor is None else _memory(gradient) for tensor, gradient in zip(extra, gradients[3:])]
    query = _memory(q)
    grad_out, grad_final = _rows(grad_out), _rows(grad_final)
    _attention_of(options, q.shape[3]).backward(
        _context(),
        _mask(mask, left, right, bounds, key_lengths, segments, visible),
        narrow,
        _memory(gradients[0]),
        _memory(gradients[1]),
        _memory(gradients[2]),
        _memory(grad_out),
        query,
        query if k is q else _memory(k),
        _memory(v),
        _memory(out),
        _memory(normaliser),
        *others,
        _memory(grad_final),
    )
    return gradients


def _backward_meta(
    grad_out, grad_final, q, k, v, out, normaliser, decay, key_projection, value_projection, initial,
    mask, left, right, bounds, key_lengths, segments, visible, options, heads_first,
):  # fmt: skip
    return _empty_gradients(q, k, v, decay, key_projection, value_projection, initial, heads_first)


_streams: dict[int, tuple] = {}


def _streams_of(state, options, *shape) -> _core.TensorStreams:
    """The recurrent form on the memory of `state`, kept as long as the tensor."""
    found = _streams.get(id(state))
    memory = _memory(state)
    if found is not None and found[0]() is state and found[1:-1] == (memory, options, shape):
        return found[-1]
    core = _core.TensorStreams(_attention_of(options, shape[1]), memory, *shape)
    key = id(state)

    def drop(reference):
        if key in _streams and _streams[key][0] is reference:
            del _streams[key]

    _streams[key] = (weakref.ref(state, drop), memory, options, shape, core)
    return core


try:
    _increment_version = torch.autograd.graph.increment_version
except AttributeError:

    def _increment_version(tensor):
        tensor[:0].zero_()  # views share the version of their tensor


def _step(q, k, v, state, decay, options):
    if _is_narrow(q, k, v, decay, None, None, state):
        refuse_type("attention step", "q, k and v of float32", str(q.dtype))
    if not state.is_inference():
        _increment_version(state)
    elif not torch.is_inference_mode_enabled():
        refuse("attention step", "a state that was not made in inference mode, or a step in that mode", "another")
    streams = _streams_of(state, options, q.shape[1], q.shape[2], v.shape[2])
    out = torch.empty_like(v, memory_format=torch.contiguous_format)
    streams.step(_context(), _memory(out), _memory(q), _memory(k), _memory(v), _memory(decay))
    return out


def _tensor_rows(options, q, k, *others):
    rows = _rows(q)
    same = k is q or (options.startswith("family=lsh") and torch.equal(k, q))  # one tensor, of which the dispatcher made two
    return (rows, rows if same else _rows(k), *[_rows(tensor) for tensor in others])


# What the dispatcher gives may have been made by it: it expands a tensor of zeros, for example.
library.impl("attention", lambda *given: _forward(*_tensor_rows(given[14], *given[:7]), *given[7:]), "CPU")
library.impl(
    "attention_backward", lambda *given: _backward(*given[:2], *_tensor_rows(given[18], *given[2:11]), *given[11:]), "CPU"
)
library.impl("attention_step", lambda q, k, v, *given: _step(*_tensor_rows("", q, k, v), *given), "CPU")
torch.library.register_fake("linnet::attention", _forward_meta, lib=library)
torch.library.register_fake("linnet::attention_backward", _backward_meta, lib=library)


@torch.library.register_fake("linnet::attention_step", lib=library)
def _(q, k, v, state, decay, options):
    _check_devices("attention step", (q, k, v, state, decay))
    return torch.empty_like(v, memory_format=torch.contiguous_format)


def _gradients(grad_out, grad_final, tensors, out, normaliser, settings):
    """The gradients of the seven tensors of an attention, None for those that are not given."""
    q, k, v, *extra = tensors
    if grad_out is None:
        grad_out = torch.zeros_like(out)
    arguments = (grad_out, grad_final if settings[-1] else None, q, k, v, out, normaliser, *extra, *settings[:-1])
    given = [tensor for tensor in (grad_out, grad_final) if tensor is not None]
    mapped = any(map(torch._C._functorch.is_legacy_batchedtensor, given))  # by torch.autograd.grad with is_grads_batched
    if not mapped and not torch.is_grad_enabled() and _is_direct((q, *given)):
        return _backward(*arguments, absent=False)
    gradients = _dispatched_backward(*arguments)
    return [None if tensor is None else gradient for tensor, gradient in zip(tensors, gradients)]


def _parted(settings):
    """The tensors of the mask, bounds, key_lengths, segments and visible, and the settings without them."""
    return settings[3:7], settings[:3] + settings[7:]


def _joined(mask_tensors, rest):
    return (*rest[:3], *mask_tensors, *rest[3:])


def _keep(ctx, inputs, output):
    tensors = inputs[:7]
    mask_tensors, ctx.settings = _parted(inputs[7:])
    out, normaliser, _ = output
    ctx.save_for_backward(*tensors, out, normaliser, *mask_tensors)
    ctx.same = tensors[1] is tensors[0]
    ctx.set_materialize_grads(False)


def _dispatched_gradients(ctx, grad_out, grad_normaliser, grad_final):
    saved = ctx.saved_tensors
    q, k, v, *extra = saved[:7]
    out, normaliser, *mask_tensors = saved[7:]
    tensors = (q, q if ctx.same else k, v, *extra)
    settings = _joined(mask_tensors, ctx.settings)
    return (*_gradients(grad_out, grad_final, tensors, out, normaliser, settings), *(None,) * 10)


torch.library.register_autograd("linnet::attention", _dispatched_gradients, setup_context=_keep, lib=library)


def _refuse_gradients(name: str, instead: str):
    def backward(ctx, *_):
        raise RuntimeError(f"[{name}] expected no gradient of this operator, {instead}, got one")

    return backward


_no_second_gradients = _refuse_gradients("attention gradients", "whose own gradients float64 tensors have")
torch.library.register_autograd("linnet::attention_backward", _no_second_gradients, lib=library)


def _is_differentiated() -> bool:
    """Whether torch.func takes gradients of what is called now."""
    if torch.compiler.is_compiling():
        return False
    levels = torch._C._functorch.get_interpreter_stack()
    return levels is not None and any(level.key() == torch._C._functorch.TransformType.Grad for level in levels)


def _for_transforms(operator, keep, backward):
    """An operator whose gradients torch.func can take: for it they are in a form that register_autograd does not give them."""

    class Transformed(torch.autograd.Function):
        generate_vmap_rule = True

        @staticmethod
        def forward(*arguments):
            return operator(*arguments)

        @staticmethod
        def jvp(ctx, *_):
            refuse("attention", "no derivatives in forward mode, which float64 tensors have", "a tensor with a tangent")

    Transformed.setup_context = staticmethod(keep)
    Transformed.backward = staticmethod(backward)

    def call(*arguments):
        return (Transformed.apply if _is_differentiated() else operator)(*arguments)

    return call


_dispatched = _for_transforms(torch.ops.linnet.attention, _keep, _dispatched_gradients)
_dispatched_backward = _for_transforms(torch.ops.linnet.attention_backward, lambda *_: None, _no_second_gradients)


def _register_vmap(name, operator, leading):
    """How torch.func.vmap maps an operator: the axis joins the batch.

    `leading` is the number of tensors before `decay`. Decays and projections, which all entries of the batch share, and masks
    that are mapped are for calls one after another.
    """
    shared = range(leading, leading + 3)
    with_entries = (*range(leading), leading + 3, leading + 8)  # also the initial state and the lengths of keys
    bounds, segments, visible = (leading + i for i in (7, 9, 10))

    def rule(info, in_dims, *given):
        size = info.batch_size
        mapped = [i for i, dim in enumerate(in_dims) if dim is not None]
        if any(given[i] is not None for i in shared) or not set(mapped) <= set(with_entries):
            entries = [
                operator(*(x if dim is None else x.select(dim, i) for x, dim in zip(given, in_dims))) for i in range(size)
            ]
            return tuple(torch.stack(parts) for parts in zip(*entries)), (0,) * len(entries[0])
        given = list(given)
        for i in with_entries:
            if given[i] is not None:
                x = given[i].movedim(in_dims[i], 0) if i in mapped else given[i].expand(size, *given[i].shape)
                given[i] = x.flatten(0, 1)
        batch = len(given[0]) // size
        for i, axes in ((bounds, 1), (segments, 2), (visible, 3)):  # with another number of axes they have no batch
            x = given[i]
            if x is not None and x.dim() == axes and len(x) == batch:
                given[i] = x.repeat(size, *[1] * (axes - 1))
        results = operator(*given)
        absent = [result.dim() == 1 for result in results]
        return (
            tuple(x if none else x.unflatten(0, (size, batch)) for x, none in zip(results, absent)),
            tuple(None if none else 0 for none in absent),
        )

    torch.library.register_vmap(name, rule, lib=library)


def _map_step(info, in_dims, q, k, v, state, decay, options):
    """How torch.func.vmap maps a step: the axis joins the streams, whose states change in place."""
    if in_dims[3] is None:
        refuse("attention step", "a state of each sample under vmap", "one for all")
    if in_dims[4] is not None:
        refuse("attention step", "one decay for all samples under vmap", "one of each")
    size = info.batch_size
    given = [x.expand(size, *x.shape) if dim is None else x.movedim(dim, 0) for x, dim in zip((q, k, v, state), in_dims)]
    rows = [x.flatten(0, 1).contiguous() for x in given]
    out = torch.ops.linnet.attention_step(*rows, decay, options)
    if rows[3].data_ptr() != state.data_ptr():
        given[3].copy_(rows[3].unflatten(0, (size, -1)))
    return out.unflatten(0, (size, -1)), 0


if hasattr(torch.library, "register_vmap"):  # PyTorch 2.5; before that its own rule calls the operators one after another
    _register_vmap("linnet::attention", _dispatched, 3)
    _register_vmap("linnet::attention_backward", _dispatched_backward, 7)
    torch.library.register_vmap("linnet::attention_step", _map_step, lib=library)


def _is_traced() -> bool:
    """Whether somebody looks at the calls of operators: a mode, a transform, a tracer or the profiler."""
    return (
        torch._C._len_torch_dispatch_stack() > 0
        or torch._C._len_torch_function_stack() > 0
        or torch._C._are_functorch_transforms_active()
        or torch._C._get_tracing_state() is not None
        or torch.autograd._profiler_enabled()
    )


# The checks are PyTorch's own, but not part of its public interface: a release without one of them takes the dispatcher's way.
try:
    _is_traced()
except AttributeError:

    def _is_traced() -> bool:
        return True


class _Direct(torch.autograd.Function):
    """``linnet::attention`` with its gradients without the dispatcher, whose way through Python costs several times as much.

    PyTorch works for each argument and each result: those of the operator that are None are not among them.
    """

    @staticmethod
    def forward(ctx, given, settings, *tensors):
        all_tensors = _spread(given, tensors)
        out, normaliser, final = _forward(*all_tensors, *settings)
        mask_tensors, ctx.settings = _parted(settings)  # saved, so that PyTorch sees whether somebody changes them
        ctx.save_for_backward(*tensors, out, normaliser, *mask_tensors)
        ctx.same = all_tensors[1] is all_tensors[0]
        ctx.given = given
        ctx.set_materialize_grads(False)
        return (out, final) if settings[-1] else out

    @staticmethod
    def backward(ctx, grad_out, grad_final=None):
        *tensors, out, normaliser, bounds, key_lengths, segments, visible = ctx.saved_tensors
        settings = _joined((bounds, key_lengths, segments, visible), ctx.settings)
        if ctx.same:
            tensors[1] = tensors[0]
        gradients = _gradients(grad_out, grad_final, _spread(ctx.given, tensors), out, normaliser, settings)
        return (None, None, *[gradients[i] for i in ctx.given])


_FIRST = (0, 1, 2)


def _spread(given, tensors):
    """The seven tensors of an attention, with None for those that are not given."""
    if given == _FIRST:
        return (*tensors, None, None, None, None)
    found = dict(zip(given, tensors))
    return tuple(found.get(i) for i in range(7))


_PLAIN = (torch.Tensor, torch.nn.Parameter)


def attention_step(*arguments):
    """``torch.ops.linnet.attention_step``, directly where that may be."""
    if forward_ad._current_level >= 0:
        _refuse_tangents("attention step", arguments[:5])
    if torch.compiler.is_compiling() or not _is_direct(arguments[:5]):
        return torch.ops.linnet.attention_step(*arguments)
    return _step(*arguments)


def _is_direct(tensors) -> bool:
    """Whether these are plain tensors of the CPU with memory of their own, and nobody traces what is called with them."""
    for tensor in tensors:
        if tensor is not None and (
            type(tensor) not in _PLAIN or not tensor.is_cpu or tensor.is_neg() or tensor._is_zerotensor()
        ):
            return False
    return not _is_traced()


def _refuse_tangents(operation, tensors):
    """Throws for a tensor with a derivative of forward mode, which would be lost."""
    for tensor in tensors:
        if tensor is not None and forward_ad.unpack_dual(tensor).tangent is not None:
            refuse(operation, "no derivatives in forward mode, which float64 tensors have", "a tensor with a tangent")


def check_by_core(q, k, v, mask, options, decay=None, *projections) -> None:
    """Throws what the library says of float32 tensors of these sizes with this mask and these options: float64 ones, which run
    through plain PyTorch, have the same limits. Traced calls are not checked."""
    if torch.compiler.is_compiling() or not q.is_cpu or _is_traced():
        return
    if 0 in (q.shape[3], v.shape[3]):
        refuse("attention", "heads and values of at least 1 number", f"{q.shape[3]} and {v.shape[3]}")
    heads = q.shape[2]
    with torch.no_grad():
        query = torch.zeros(q.shape[0], q.shape[1], heads, q.shape[3], dtype=torch.float32, device=q.device)
        key = torch.zeros(k.shape[0], k.shape[1], heads, k.shape[3], dtype=torch.float32, device=q.device)
        given = [None if tensor is None else tensor.detach().float() for tensor in (decay, *projections)]
        extra = (*given, *[None] * (4 - len(given)))
        attention(query, key, key[..., :1], *extra, *mask, options, False, False)


def _has_gradients(tensors) -> bool:
    if not torch.is_grad_enabled():
        return False
    for tensor in tensors:
        if tensor is not None and tensor.requires_grad:
            return True
    return False


def attention(*arguments):
    """The output and the final state of ``torch.ops.linnet.attention``, called directly where that may be."""
    tensors = arguments[:7]
    if forward_ad._current_level >= 0:
        _refuse_tangents("attention", tensors)
    if torch.compiler.is_compiling() or not _is_direct(tensors):
        out, _, final = _dispatched(*arguments)
        return out, final
    settings = arguments[7:]
    if _has_gradients(tensors):
        given = tuple([i for i in range(7) if tensors[i] is not None])
        result = _Direct.apply(given, settings, *[tensors[i] for i in given])
        return result if settings[-1] else (result, None)
    results = None if settings[-1] else (_output(tensors[0], tensors[2], settings[-2]), None, None)
    out, _, final = _forward(*arguments, results=results)
    return out, final
