import copy
import gc

import ml_dtypes
import numpy as np
import pytest
from references import causal, differences, linear, softmax
from support import relative, uniform

import linnet

B, L, H, E, M = 2, 37, 3, 8, 5


def inputs(length=L, keys=None, seed=0):
    keys = length if keys is None else keys
    return uniform(seed, B, length, H, E), uniform(seed + 1, B, keys, H, E), uniform(seed + 2, B, keys, H, M)


def visible_of(begin, end, keys):
    """[1, queries, keys] of intervals."""
    positions = np.arange(keys)
    return ((positions >= np.asarray(begin)[:, None]) & (positions < np.asarray(end)[:, None]))[None].astype(float)


def masks():
    rows = np.arange(L)
    lengths = np.array([L - 9, L])
    within = (np.arange(L)[None, None, :] < lengths[:, None, None]).astype(float)
    segment = np.searchsorted([10, 25], rows, side="right")
    random = np.random.default_rng(4).integers(0, 2, (B, L, L)).astype(np.uint8)
    prefix = visible_of(0 * rows, np.maximum(rows + 1, 12), L)
    return {
        "none": (None, np.ones((1, L, L))),
        "full": ("full", np.ones((1, L, L))),
        "causal": ("causal", causal(L)),
        "prefix": (linnet.Mask.prefix([12]), prefix),
        "window": (linnet.Mask.window(7, 2), visible_of(rows - 7, rows + 3, L)),
        "intervals": (linnet.Mask.intervals(list(rows // 2), list(rows // 2 + 5)), visible_of(rows // 2, rows // 2 + 5, L)),
        "key lengths": (linnet.Mask.causal().with_key_lengths(list(lengths)), causal(L) * within),
        "segments": (
            linnet.Mask.causal().with_segments([0, 10, 25, L]),
            causal(L) * (segment[:, None] == segment[None, :])[None],
        ),
        "boolean": (random, random.astype(float)),
    }


@pytest.mark.parametrize("name", masks())
@pytest.mark.parametrize("family", ["linear", "softmax"])
def test_forward_is_the_formula_under_every_mask(family, name):
    mask, visible = masks()[name]
    q, k, v = inputs()
    expected = (linear if family == "linear" else softmax)(q, k, v, visible)
    assert relative(linnet.attention(q, k, v, family=family, mask=mask), expected) < 1e-5


@pytest.mark.parametrize("features", [row["name"] for row in linnet.feature_maps() if not row["random"] and row["non_negative"]])
def test_forward_is_the_formula_for_every_feature_map(features):
    q, k, v = inputs()
    expected = linear(q, k, v, causal(L), features=features)
    assert relative(linnet.attention(q, k, v, feature_map=features, mask="causal"), expected) < 1e-5


def test_sums_without_a_normaliser():
    q, k, v = inputs()
    found = linnet.attention(q, k, v, feature_map="identity", normalise="none", mask="causal")
    assert relative(found, linear(q, k, v, causal(L), features="identity", normalise=False)) < 1e-5


def test_decay_is_the_formula():
    q, k, v = inputs()
    decay = [0.9, 1.0, 0.5]
    found = linnet.attention(q, k, v, mask="causal", decay=decay)
    assert relative(found, linear(q, k, v, causal(L), decay)) < 1e-5


def test_other_lengths_of_keys():
    q, k, v = inputs(5, 11)
    assert relative(linnet.attention(q, k, v), linear(q, k, v, np.ones((1, 5, 11)))) < 1e-5


@pytest.mark.parametrize("name", ["full", "causal", "window", "key lengths", "boolean"])
@pytest.mark.parametrize("family", ["linear", "softmax"])
def test_gradients_are_differences_of_the_formula(family, name):
    length = 9
    q, k, v = (array[:, :length] for array in inputs())
    upper = uniform(9, B, length, H, M)
    rows = np.arange(length)
    mask, visible = {
        "full": ("full", np.ones((1, length, length))),
        "causal": ("causal", causal(length)),
        "window": (linnet.Mask.window(3, 1), visible_of(rows - 3, rows + 2, length)),
        "key lengths": (
            linnet.Mask.causal().with_key_lengths([6, length]),
            causal(length) * (rows[None, None] < np.array([6, length])[:, None, None]),
        ),
        "boolean": (np.tril(np.ones((length, length), bool), 2), np.tril(np.ones((1, length, length)), 2)),
    }[name]
    formula = linear if family == "linear" else softmax
    expected = differences(lambda *arrays: formula(*arrays, visible), (q, k, v), upper)
    found = linnet.attention_gradients(q, k, v, upper, family=family, mask=mask)
    for gradient, wanted in zip(found, expected):
        assert relative(gradient, wanted) < 1e-4


def test_gradient_of_the_decay_is_a_difference():
    q, k, v = (array[:, :9] for array in inputs())
    upper, decay = uniform(9, B, 9, H, M), np.array([0.9, 0.8, 0.5])
    expected = differences(lambda gamma: linear(q, k, v, causal(9), gamma), [decay], upper)[0]
    found = linnet.attention_gradients(q, k, v, upper, mask="causal", decay=decay)
    assert relative(found.decay, expected) < 1e-4


@pytest.mark.parametrize("family", ["linear", "softmax"])
def test_a_state_continues_the_sequence(family):
    q, k, v = inputs()
    whole = linnet.attention(q, k, v, family=family, mask="causal")
    first, state = linnet.attention(q[:, :20], k[:, :20], v[:, :20], family=family, mask="causal", return_state=True)
    second = linnet.attention(q[:, 20:], k[:, 20:], v[:, 20:], family=family, mask="causal", state=state)
    assert state.position(0) == 20
    assert relative(np.concatenate([first, second], 1), whole) < 1e-5


@pytest.mark.parametrize("family", ["linear", "softmax", "local"])
def test_steps_are_the_parallel_form(family):
    q, k, v = inputs()
    mask = linnet.Mask.causal()
    whole = linnet.attention(q, k, v, family=family, mask=mask)
    state = linnet.Attention(family).state(B, H, E, M)
    for i in range(L):
        row = linnet.attention_step(q[:, i], k[:, i], v[:, i], state, family=family)
        assert relative(row, whole[:, i]) < 1e-4
    assert state.position(1) == L


def test_states_save_restore_fork_and_clone():
    family = linnet.Attention("linear")
    state = family.state(2, H, E, M)
    step = [uniform(i, 2, H, width) for i, width in enumerate((E, E, M))]
    family.step(*step, state)
    saved, twin = state.save(0), state.clone()
    state.fork(1, 0)
    assert np.array_equal(state.save(1), saved)
    assert not np.array_equal(twin.save(1), saved)
    state.reset(0)
    assert state.position(0) == 0 and twin.position(0) == 1
    state.restore(saved, 1, slot=0)
    assert np.array_equal(state.save(0), saved) and saved.dtype == np.float32
    with pytest.raises(linnet.Error, match="expected"):
        state.restore(saved[:-1], 1)
    with pytest.raises(linnet.UsageError, match="slot in 0 ... 1, got 2"):
        state.reset(2)
    for other in (copy.copy(state), copy.deepcopy(state)):
        assert np.array_equal(family.step(*step, other), family.step(*step, state.clone()))
        assert (other.position(0), state.position(0)) == (2, 1)


def test_caches_of_bf16_take_half_the_memory():
    q, k, v = inputs()
    narrow, wide = linnet.Attention("softmax", cache="bf16"), linnet.Attention("softmax")
    states = narrow.state(B, H, E, M), wide.state(B, H, E, M)
    for i in range(L):
        rows = [family.step(q[:, i], k[:, i], v[:, i], state) for family, state in zip((narrow, wide), states)]
        assert 0 < relative(*rows) < 0.01
    assert 2 * states[0].bytes(1) == states[1].bytes(1)
    saved = states[0].save(1)
    assert saved.size == states[1].save(1).size
    again = narrow.state(1, H, E, M)
    again.restore(saved, L)
    assert np.array_equal(again.save(), saved)
    with pytest.raises(linnet.UsageError, match="cache 'f32' or 'bf16', got 'f16'"):
        linnet.Attention("softmax", cache="f16")


def test_gradients_of_states_make_two_calls_one():
    q, k, v = inputs()
    upper = uniform(9, B, L, H, M)
    whole = linnet.attention_gradients(q, k, v, upper, mask="causal")
    parts = slice(0, 20), slice(20, L)
    _, state, first = linnet.attention(
        *(array[:, parts[0]] for array in (q, k, v)), mask="causal", return_state=True, gradients=True
    )
    _, second = linnet.attention(*(array[:, parts[1]] for array in (q, k, v)), mask="causal", state=state, gradients=True)
    later = second(upper[:, parts[1]])
    sooner = first(upper[:, parts[0]], later.state)
    assert later.state.shape == (B, state.gradient_floats(0))
    for i in range(3):
        assert relative(np.concatenate([sooner[i], later[i]], 1), whole[i]) < 1e-5


def test_layouts_agree():
    q, k, v = inputs()
    upper = uniform(9, B, L, H, M)
    turned = [np.ascontiguousarray(array.transpose(0, 2, 1, 3)) for array in (q, k, v, upper)]
    out, backward = linnet.attention(*turned[:3], mask="causal", layout="bhnd", gradients=True)
    assert out.shape == (B, H, L, M) and out.flags.c_contiguous
    assert np.array_equal(out.transpose(0, 2, 1, 3), linnet.attention(q, k, v, mask="causal"))
    for turned_gradient, gradient in zip(backward(turned[3])[:3], linnet.attention_gradients(q, k, v, upper, mask="causal")):
        assert np.array_equal(turned_gradient.transpose(0, 2, 1, 3), gradient)


def test_strided_reversed_and_read_only_arrays():
    q, k, v = inputs()
    plain = linnet.attention(q, k, v, mask="causal")
    wide = np.zeros((B, 2 * L, H, 2 * E), np.float32)
    wide[:, ::2, :, :E] = q
    spread = wide[:, ::2, :, :E]  # outer strides
    every_other = np.zeros((B, L, H, 2 * E), np.float32)
    every_other[..., ::2] = q  # no stride 1
    fixed = q.copy()
    fixed.flags.writeable = False
    unaligned = np.frombuffer(b"x" + q.tobytes(), np.uint8)[1:].view(np.float32).reshape(q.shape)
    for variant in (spread, every_other[..., ::2], fixed, q[:, ::-1][:, ::-1], q.astype(">f4"), unaligned):
        assert np.array_equal(linnet.attention(variant, k, v, mask="causal"), plain)
    backwards = [array[:, ::-1] for array in (q, k, v)]
    copied = [np.ascontiguousarray(array) for array in backwards]
    assert np.array_equal(linnet.attention(*backwards, mask="causal"), linnet.attention(*copied, mask="causal"))


def test_linformer_and_lsh():
    q, k, v = inputs()
    e = uniform(5, H, 6, L)
    found, backward = linnet.attention(q, k, v, family="linformer", key_projection=e, value_projection=e, gradients=True)
    short = np.einsum("hks,bshe->bkhe", e.astype(float), k), np.einsum("hks,bshm->bkhm", e.astype(float), v)
    assert relative(found, softmax(q, *short, np.ones((1, L, 6)))) < 1e-5
    assert backward(found).key_projection.shape == e.shape
    one_bucket = linnet.attention(q, q, v, family="lsh", mask="causal", buckets=1, chunk=L)
    assert one_bucket.shape == (B, L, H, M) and np.isfinite(one_bucket).all()
    with pytest.raises(linnet.Error, match="expected"):
        linnet.attention(q, k, v, family="lsh", mask="causal")


def test_kernel_family_is_softmax():
    q, k, v = inputs()
    assert relative(linnet.attention(q, k, v, family="kernel", mask="causal", epsilon=0), softmax(q, k, v, causal(L))) < 1e-5


def test_random_features_approach_softmax():
    q, k, v = inputs()
    exact = softmax(q, k, v, causal(L))
    chosen = linnet.feature_map("favor", head_dim=E, features=4096, seed=1)
    assert relative(linnet.attention(q, k, v, feature_map=chosen, mask="causal"), exact) < 0.1
    chosen = linnet.feature_map("favor", head_dim=E, features=4096, directions="hadamard", seed=1)
    assert relative(linnet.attention(q, k, v, feature_map=chosen, mask="causal"), exact) < 0.1
    again = linnet.attention(q, k, v, feature_map="favor", mask="causal", seed=1)
    assert np.array_equal(again, linnet.attention(q, k, v, feature_map="favor", mask="causal", seed=1))
    assert not np.array_equal(again, linnet.attention(q, k, v, feature_map="favor", mask="causal", seed=2))


def test_bfloat16():
    q, k, v = (array.astype(ml_dtypes.bfloat16) for array in inputs())
    out, backward = linnet.attention(q, k, v, mask="causal", gradients=True)
    assert out.dtype == ml_dtypes.bfloat16 and backward(out).q.dtype == ml_dtypes.bfloat16
    exact = linnet.attention(*(array.astype(np.float32) for array in (q, k, v)), mask="causal")
    assert relative(out.astype(np.float32), exact) < 1e-2


def test_memory_of_somebody_else():
    """What a caller with pointers uses: the same numbers without an array."""
    q, k, v = inputs()
    core = linnet.Attention("linear")._core_of(E)
    out, denominators = np.empty_like(v), np.empty((B, L, H), np.float32)

    def array(a):
        return linnet._core.Array(a.ctypes.data, "f32", list(a.shape), [s // 4 for s in a.strides])

    core.forward(
        linnet.Context(1), *(array(a) for a in (out, q, k, v)), linnet.Mask.causal(), normaliser=array(denominators)
    )
    assert np.array_equal(out, linnet.attention(q, k, v, mask="causal"))
    with pytest.raises(linnet.UsageError, match="last axis is contiguous"):
        linnet._core.Array(q.ctypes.data, "f32", [2, 3], [1, 2])
    with pytest.raises(linnet.UsageError, match="element type among"):
        linnet._core.Array(q.ctypes.data, "f16", [2], [1])


def test_threads_do_not_change_bits():
    q, k, v = inputs(300)
    one, three = linnet.Context(1), linnet.Context(threads=3)
    assert three.threads == 3
    assert np.array_equal(linnet.attention(q, k, v, context=one), linnet.attention(q, k, v, context=three))


@pytest.mark.parametrize("shape", [(0, 4, 2, 8), (2, 0, 2, 8), (2, 4, 0, 8), (2, 4, 2, 0)])
def test_empty_arrays_give_a_result_or_a_sentence(shape):
    empty = np.zeros(shape, np.float32)
    for family in ("linear", "softmax"):
        for options in ({}, {"gradients": True}, {"mask": "causal", "return_state": True}):
            try:
                linnet.attention(empty, empty, empty, family=family, **options)
            except linnet.Error as error:
                assert "expected" in str(error)


def test_tables():
    assert [row["name"] for row in linnet.families()][:2] == ["linear", "softmax"]
    assert {"elu", "favor"} <= {row["name"] for row in linnet.feature_maps()}
    assert "gaussian" in {row["name"] for row in linnet.similarities()}
    assert linnet.instruction_set() in ("AVX3_ZEN4", "AVX3_DL", "AVX3", "AVX2", "SSE4", "SCALAR", "EMU128")


@pytest.mark.parametrize("family", ["linear", "softmax", "kernel", "local", "strided", "linformer"])
def test_float64_is_the_same_in_double_precision(family):
    q, k, v = inputs()
    upper = uniform(9, B, L, H, M)
    options = {"family": family, "mask": None if family == "linformer" else "causal"}
    if family == "linformer":
        options["key_projection"] = options["value_projection"] = uniform(5, H, 6, L)
    double = [array.astype(np.float64) for array in (q, k, v, upper)]
    exact = linnet.attention(*double[:3], **options)
    assert exact.dtype == np.float64 and relative(linnet.attention(q, k, v, **options), exact) < 1e-5
    gradients = linnet.attention_gradients(*double, **options)
    for found, wanted in zip(linnet.attention_gradients(q, k, v, upper, **options)[:3], gradients):
        assert wanted.dtype == np.float64 and relative(found, wanted) < 1e-4


def test_float64_gradients_are_differences():
    q, k, v = (array[:, :6].astype(np.float64) for array in inputs())
    upper, decay = uniform(9, B, 6, H, M).astype(np.float64), np.array([0.9, 0.8, 0.5])
    found = linnet.attention_gradients(q, k, v, upper, mask="causal", decay=decay)
    expected = differences(lambda *a: linnet.attention(*a[:3], mask="causal", decay=a[3]), (q, k, v, decay), upper, 1e-5)
    for gradient, wanted in zip(found, expected):
        assert relative(gradient, wanted) < 1e-8


def test_a_shared_projection_has_the_sum_of_both_gradients():
    q, k, v = (array[:, :6].astype(np.float64) for array in inputs())
    e, upper = uniform(5, H, 3, 6).astype(np.float64), uniform(9, B, 6, H, M).astype(np.float64)

    def both(projection):
        return linnet.attention(q, k, v, family="linformer", key_projection=projection, value_projection=projection)

    found = linnet.attention_gradients(q, k, v, upper, family="linformer", key_projection=e, value_projection=e)
    expected = differences(both, [e], upper, 1e-5)[0]
    assert relative(found.key_projection + found.value_projection, expected) < 1e-8


def test_a_boolean_mask_is_a_copy():
    visible = np.tri(50, dtype=bool)[None].repeat(2, 0)
    q = uniform(1, 2, 50, 3, 16)
    mask = linnet.Mask.boolean(visible)
    out, backward = linnet.attention(q, q, q, mask=mask, gradients=True)
    gradient = backward(q).q
    # Also where it has gaps.
    gaps = np.zeros((2, 100, 100), bool)
    gaps[:, ::2, ::2] = visible
    for other in (gaps[:, ::2, ::2], np.asfortranarray(visible)):
        assert np.array_equal(linnet.attention(q, q, q, mask=linnet.Mask.boolean(other)), out)
    visible[:] = True
    assert np.array_equal(linnet.attention(q, q, q, mask=mask), out)
    assert np.array_equal(backward(q).q, gradient)
    wide = np.ones((2, 100, 60), bool)
    wide[:, ::2, :50] = np.tri(50, dtype=bool)
    assert np.array_equal(linnet.attention(q, q, q, mask=linnet.Mask.boolean(wide[:, ::2, :50])), out)


def test_arrays_without_elements_have_results_without_elements():
    for shape in ((0, 6, 3, 4), (2, 0, 3, 4)):
        q = np.zeros(shape, np.float32)
        assert linnet.attention(q, q, q).shape == shape
        assert linnet.attention_gradients(q, q, q, q).q.shape == shape


def test_objects_with_the_dlpack_interface_are_arrays():
    class Capsule:
        def __init__(self, array):
            self.array = array

        def __dlpack__(self, **options):
            return self.array.__dlpack__(**options)

        def __dlpack_device__(self):
            return self.array.__dlpack_device__()

    q = uniform(1, 2, 6, 3, 4)
    assert np.array_equal(linnet.attention(Capsule(q), q, q), linnet.attention(q, q, q))


def test_options_of_many_calls_are_forgotten():
    from linnet import _attention

    q = uniform(1, 1, 4, 1, 8)
    for seed in range(300):
        linnet.attention(q, q, q, scale=1 + seed / 300, family="softmax")
    assert _attention._recent_attention.cache_info().currsize <= 256


def test_options_of_a_state_are_remembered():
    from linnet import _attention

    q = uniform(1, 1, 4, 1, 8)
    options = {"mask": "causal", "feature_map": "favor"}
    kept = linnet.attention(q, q, q, seed=0, return_state=True, **options)[1].clone()
    for seed in range(1, 300):
        linnet.attention(q, q, q, seed=seed, **options)
    out = linnet.attention(q, q, q, seed=0, state=kept, **options)
    gc.collect()
    assert np.isfinite(out).all() and len(_attention._living) <= 258


@pytest.mark.parametrize(
    "options",
    [
        {"family": "linear", "feature_map": np.str_("elu")},
        {"epsilon": np.float32(1e-6)},
        {"scale": 0, "seed": np.int64(0), "compensated": np.True_},
        {"scale": np.array(0.0), "similarity": "exponential"},
    ],
    ids=str,
)
def test_a_state_fits_equal_options(options):
    q = uniform(1, 1, 4, 1, 8)
    state = linnet.attention(q, q, q, mask="causal", return_state=True)[1]
    out = linnet.attention(q, q, q, mask="causal", state=state, **options)
    assert np.array_equal(out, linnet.attention(q, q, q, mask="causal", state=state))
    # Also between objects, and an empty one.
    assert np.array_equal(out, linnet.Attention(**options)(q, q, q, mask="causal", state=state))
    empty = linnet.Attention(**options).state(1, 1, 8)
    assert np.array_equal(
        linnet.attention(q, q, q, mask="causal", state=empty), linnet.attention(q, q, q, mask="causal")
    )
    linnet.attention_step(q[:, 0], q[:, 0], q[:, 0], empty, **options)
    linnet.Attention().step(q[:, 0], q[:, 0], q[:, 0], state)
    assert (empty.position(), state.position()) == (1, 5)
    with pytest.raises(linnet.UsageError, match="a state of an attention with the same options"):
        linnet.attention(q, q, q, mask="causal", state=state, **options | {"epsilon": 1e-5})


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_an_output_that_gradients_need_is_read_only(dtype):
    q = uniform(1, 1, 6, 2, 4).astype(dtype)
    out, backward = linnet.attention(q, q, q, family="softmax", gradients=True)
    with pytest.raises(ValueError, match="read-only"):
        out -= 1
    changed = out.copy()
    changed -= 1
    assert backward(changed).q.flags.writeable and linnet.attention(q, q, q).flags.writeable


def test_masks_take_whole_numbers_alone():
    whole = linnet.Mask.causal().with_key_lengths(np.array([3, 2], np.int16))
    q = uniform(1, 2, 4, 1, 8)
    assert np.array_equal(
        linnet.attention(q, q, q, mask=whole), linnet.attention(q, q, q, mask=linnet.Mask.causal().with_key_lengths([3, 2]))
    )
    one, each = linnet.Mask.causal().with_segments((0, 1, 4)), linnet.Mask.causal().with_segments([[0, 1, 4], (0, 1, 4)])
    rows = linnet.Mask.causal().with_segments(np.array([[0, 1, 4], [0, 1, 4]]))
    for mask in (each, rows):
        assert np.array_equal(linnet.attention(q, q, q, mask=one), linnet.attention(q, q, q, mask=mask))
