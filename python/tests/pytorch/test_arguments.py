"""What float32 and float64 tensors refuse in the same way, in one sentence, and what they take."""

import math

import numpy as np
import pytest
import torch
from torch_support import rows

import linnet
import linnet.torch as lt

N = 12
DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
MASKS = [
    {"mask": True},
    {"mask": ["causal"]},
    {"mask": np.ones((N, N))},
    {"mask": np.ones((N, N + 1), bool)},
    {"window": (1,)},
    {"window": "ab"},
    {"window": (1.7, 0)},
    {"window": 1.5},
    {"window": (math.nan, 0)},
    {"window": (-1, 0)},
    {"window": (2**63, 0)},
    {"window": (True, 0)},
    {"prefix": [1.5]},
    {"prefix": "ab"},
    {"prefix": True},
    {"prefix": [N + 1]},
    {"prefix": [-1]},
    {"prefix": [1, 2, 3]},
    {"prefix": []},
    {"intervals": 5},
    {"mask": "causal", "intervals": ([0] * N, [3] * N)},
    {"intervals": ([0] * N,)},
    {"intervals": ([0] * N, [3] * (N - 1))},
    {"intervals": ([0] * N, [3] * N, [1])},
    {"intervals": ([0] * (N - 1), [3] * (N - 1))},
    {"intervals": (list(range(N))[::-1], [N] * N)},
    {"intervals": ([0] * N, [99] * N)},
    {"key_lengths": []},
    {"key_lengths": 5},
    {"key_lengths": [3.9, 2.2]},
    {"key_lengths": np.array([3.9, 2.2])},
    {"key_lengths": [[3], [4]]},
    {"key_lengths": [True, True]},
    {"key_lengths": ["a", "b"]},
    {"key_lengths": [N + 1, 1]},
    {"key_lengths": [-1, 1]},
    {"key_lengths": [1]},
    {"key_lengths": [1, 2, 3]},
    {"key_lengths": [2**63, 1]},
    {"key_lengths": torch.tensor([], dtype=torch.int64)},
    {"segments": 5},
    {"segments": []},
    {"segments": [[]]},
    {"segments": "ab"},
    {"segments": [0.5, N]},
    {"segments": [0, 5]},
    {"segments": [0, 7, 5, N]},
    {"segments": [[0, -7, N], [0, 3, N]]},
    {"segments": [[0, N], [0, 3, -1]]},
    {"segments": [[0, "a"], [1, 2]]},
    {"segments": [[0, N], [0, 3, N], [0, N]]},
    {"segments": torch.tensor([[0, -1, N], [0, 3, N]])},
]


def inputs(dtype=torch.float32):
    return [rows(2, N, 3, 4, dtype=dtype, gradient=False) for _ in range(3)]


def refused(call):
    with pytest.raises(linnet.Error) as caught:
        call()
    text = str(caught.value)
    assert text.startswith("[") and "] expected " in text and ", got " in text and "\n" not in text


@DTYPES
@pytest.mark.parametrize("given", MASKS, ids=str)
def test_masks_that_are_refused(given, dtype):
    q, k, v = inputs(dtype)
    for function in (lt.linear_attention, lt.softmax_attention, lt.local_attention):
        refused(lambda function=function: function(q, k, v, **given))


@DTYPES
@pytest.mark.parametrize(
    "call",
    [
        lambda q, k, v: lt.linear_attention(q, k, v, alpha=-1),
        lambda q, k, v: lt.linear_attention(q, k, v, alpha=math.nan),
        lambda q, k, v: lt.linear_attention(q, k, v, epsilon=-1),
        lambda q, k, v: lt.linear_attention(q, k, v, epsilon=math.nan),
        lambda q, k, v: lt.linear_attention(q, k, v, epsilon=True),
        lambda q, k, v: lt.favor_attention(q, k, v, features=True),
        lambda q, k, v: lt.favor_attention(q, k, v, seed=False),
        lambda q, k, v: lt.favor_attention(q, k, v, seed=2**64),
        lambda q, k, v: lt.favor_attention(q, k, v, layer=2**31),
        lambda q, k, v: lt.favor_attention(q[..., :0], k[..., :0], v),
        lambda q, k, v: lt.linear_attention(q[..., :0], k[..., :0], v),
        lambda q, k, v: lt.linear_attention(q, k, v, mask="causal", decay=torch.tensor([0.5, 0.5, 0.0])),
        lambda q, k, v: lt.linear_attention(q, k, v, mask="causal", decay=torch.tensor([0.5, 2.0, 0.5])),
        lambda q, k, v: lt.softmax_attention(q, k, v, scale=-1.0),
        lambda q, k, v: lt.softmax_attention(q, k, v, scale=math.nan),
        lambda q, k, v: lt.softmax_attention(q, k, v, scale=True),
        lambda q, k, v: lt.local_attention(q, k, v, left=True),
        lambda q, k, v: lt.local_attention(q, k, v, left=2**63),
        lambda q, k, v: lt.local_attention(q, k[:, :5], v[:, :5]),
        lambda q, k, v: lt.strided_attention(q, k, v, pattern="fixed", stride=4, summary=8),
        lambda q, k, v: lt.strided_attention(q, k, v, pattern="fixed", stride=4, summary=0),
        lambda q, k, v: lt.strided_attention(q, k, v, stride=2**62),
        lambda q, k, v: lt.strided_attention(q, k[:, :5], v[:, :5]),
        lambda q, k, v: lt.linformer_attention(q, k, v, torch.ones(1, 0, N)),
        lambda q, k, v: lt.linformer_attention(q, k, v, torch.ones(1, N + 1, N)),
        lambda q, k, v: lt.linformer_attention(q, k, v, torch.ones(1, 5, N), torch.ones(1, 4, N)),
        lambda q, k, v: lt.linear_attention_step(q[:, 0], k[:, 0], v[:, 0], lt.linear_state(2, 3, 4), decay=0.5),
    ],
)  # fmt: skip
def test_options_that_are_refused(call, dtype):
    refused(lambda: call(*inputs(dtype)))


@pytest.mark.parametrize(
    "call",
    [
        lambda: lt.lsh_attention(*inputs()[:2], mask=np.ones((N, N), bool)),
        lambda: lt.lsh_attention(*inputs()[:2], seed=2**64),
        lambda: lt.linear_attention(*[torch.nested.nested_tensor([torch.ones(3, 3, 4)])] * 3),
        lambda: lt.linear_state(-1, 1, 1),
        lambda: lt.linear_state("a", 1, 1),
        lambda: lt.linear_state(1, 1, 0, feature_map="favor"),
        lambda: lt.linear_state(2**40, 2**20, 2**20),
        lambda: lt.split_state(torch.zeros(2, 61), 3, 4),
        lambda: lt.split_state(torch.zeros(2, 60), 0, 4),
        lambda: lt.split_state(torch.zeros(60), 3, 4),
        lambda: lt.split_state(3, 3, 4),
        lambda: lt.split_state(lt.linear_state(2, 3, 4, feature_map="favor"), 3, 4),
    ],
)
def test_states_hashes_and_nested_tensors_that_are_refused(call):
    refused(call)


@DTYPES
def test_whole_numbers_of_every_kind(dtype):
    q, k, v = inputs(dtype)

    def same(given, other):
        assert torch.equal(lt.softmax_attention(q, k, v, **given), lt.softmax_attention(q, k, v, **other))

    expected = {"key_lengths": [5, 3]}
    for lengths in ((5, 3), np.array([5, 3]), [np.int64(5), torch.tensor(3)], torch.tensor([5, 3], dtype=torch.int32)):
        same({"key_lengths": lengths}, expected)
    same({"segments": np.array([0, 5, N])}, {"segments": [0, 5, N]})
    same({"segments": [np.int64(0), np.int64(5), N]}, {"segments": [0, 5, N]})
    same({"segments": [[0, N], [0, 5, N]]}, {"segments": torch.tensor([[0, N, -1], [0, 5, N]])})
    same({"window": torch.tensor([2, 1])}, {"window": (2, 1)})
    same({"window": np.int64(2)}, {"window": (2, 0)})
    same({"prefix": np.int64(4)}, {"prefix": [4]})
    kept = np.tril(np.ones((N, N), bool))
    same({"mask": kept}, {"mask": torch.from_numpy(kept)})
    same({"window": (2**63 - 1, 2**63 - 1)}, {})
    same({"window": (2**62, 0)}, {"mask": "causal"})


@DTYPES
@pytest.mark.parametrize("number", [np.float32, np.float64, np.int64])
def test_real_numbers_of_numpy(number, dtype):
    q, k, v = inputs(dtype)
    for function, name in ((lt.linear_attention, "epsilon"), (lt.linear_attention, "alpha"), (lt.softmax_attention, "scale")):
        assert torch.equal(function(q, k, v, **{name: number(2)}), function(q, k, v, **{name: 2.0}))


@DTYPES
@pytest.mark.parametrize("name", ["favor", "random-exp", "relu"])
def test_gradients_of_queries_that_see_no_key_are_zero(name, dtype):
    q, k, v = (tensor.requires_grad_() for tensor in inputs(dtype))
    out = lt.linear_attention(q, k, v, window=(1, 0), key_lengths=[1, 0], feature_map=name, epsilon=0.0)
    out.sum().backward()
    assert torch.equal(out[0, 2:], torch.zeros_like(out[0, 2:])) and torch.equal(out[1], torch.zeros_like(out[1]))
    for tensor in (q, k, v):
        assert tensor.grad.isfinite().all()
    assert q.grad[1].abs().max() == 0


@DTYPES
def test_padding_may_be_anything(dtype):
    clean = inputs(dtype)
    dirty = [tensor.clone() for tensor in clean]
    dirty[1][:, 8:], dirty[2][:, 8:] = math.nan, math.inf
    projection = torch.randn(1, 5, N)
    for function in (
        lt.linear_attention,
        lt.softmax_attention,
        lt.favor_attention,
        lt.local_attention,
        lt.strided_attention,
        lambda *x, **lengths: lt.linformer_attention(*x, projection, **lengths),
    ):
        results = []
        for given in (clean, dirty):
            leaves = [tensor.clone().requires_grad_() for tensor in given]
            out = function(*leaves, key_lengths=[8, 5])
            results.append([out, *torch.autograd.grad(out.sum(), leaves)])
        for expected, found in zip(*results):
            assert torch.equal(found, expected)


@pytest.mark.parametrize("name", ["favor-trig", "favor-sincos", "identity", "random-cos"])
def test_denominators_of_either_sign_are_alike_in_both_types(name):
    torch.manual_seed(0)
    q, k, v = (2 * tensor for tensor in inputs())
    found = lt.linear_attention(q, k, v, feature_map=name)
    exact = lt.linear_attention(q.double(), k.double(), v.double(), feature_map=name)
    assert torch.equal(found == 0, exact == 0)
    assert (found - exact).norm() < 1e-3 * exact.norm()


@DTYPES
def test_an_empty_batch_has_no_lists_of_segments(dtype):
    q = torch.empty(0, 5, 2, 4, dtype=dtype)
    segments = torch.empty(0, 3, dtype=torch.int64)
    assert lt.linear_attention(q, q, q, segments=segments).shape == q.shape
