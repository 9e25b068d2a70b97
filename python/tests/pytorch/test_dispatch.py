"""The operators as PyTorch's dispatcher, autograd and compiler see them."""

import pytest
import torch
from torch_support import relative, rows

import linnet.torch as lt
from linnet.torch._functions import linear_options

CHECKS = ("test_schema", "test_autograd_registration", "test_faketensor")


def arguments(**changed):
    given = dict.fromkeys("q k v decay key_projection value_projection initial".split())
    given |= {"mask": "causal", "left": 0, "right": 0, "bounds": None, "key_lengths": None, "segments": None, "visible": None}
    given |= {"options": linear_options(8), "heads_first": False, "with_state": False}
    given |= {name: rows(2, 9, 2, 8) for name in "qkv"}
    return tuple((given | changed).values())


@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"mask": "full", "key_lengths": torch.tensor([3, 9]), "options": "family=softmax;scale=0.0"},
        {"mask": "boolean", "visible": torch.ones(1, 9, 9).bool(), "options": "family=softmax;scale=0.0"},
    ],
)
def test_opcheck(changed):
    torch.library.opcheck(torch.ops.linnet.attention.default, arguments(**changed), test_utils=CHECKS)


def test_opcheck_of_states_and_of_compilation():
    state = lt.linear_state(2, 2, 8).uniform_().requires_grad_()
    gamma = torch.tensor([0.5, 0.9]).requires_grad_()
    given = arguments(decay=gamma, initial=state, with_state=True)
    torch.library.opcheck(torch.ops.linnet.attention.default, given)


def test_opcheck_of_the_step():
    q, k, v = (rows(2, 2, 8, gradient=False) for _ in range(3))
    given = (q, k, v, lt.linear_state(2, 2, 8), None, linear_options(8))
    torch.library.opcheck(torch.ops.linnet.attention_step.default, given, test_utils=CHECKS)


def test_gradcheck():
    q, k, v = (rows(1, 5, 2, 3, dtype=torch.float64) for _ in range(3))
    gamma = torch.tensor([0.5, 0.9], dtype=torch.float64).requires_grad_()
    state = lt.linear_state(1, 2, 3, dtype=torch.float64).uniform_().requires_grad_()

    def carried(q, k, v, gamma, state):
        return lt.linear_attention(q, k, v, mask="causal", decay=gamma, initial_state=state, return_state=True)

    assert torch.autograd.gradcheck(carried, (q, k, v, gamma, state))
    assert torch.autograd.gradcheck(lambda *x: lt.softmax_attention(*x, window=(1, 1), key_lengths=[4]), (q, k, v))
    assert torch.autograd.gradcheck(lambda *x: lt.local_attention(*x, left=2), (q, k, v))
    assert torch.autograd.gradcheck(lambda *x: lt.favor_attention(*x, features=4), (q, k, v))
    p = rows(1, 2, 5, dtype=torch.float64)
    assert torch.autograd.gradcheck(lt.linformer_attention, (q, k, v, p))


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_compile_without_graph_breaks(backend):
    def function(q, k, v):
        out, state = lt.linear_attention(q * 2, k, v, mask="causal", return_state=True)
        return out + lt.softmax_attention(q, k, out, key_lengths=[9, 4]), state

    compiled = torch.compile(function, fullgraph=True, backend=backend)
    q, k, v = (rows(2, 9, 2, 8) for _ in range(3))
    expected, found = function(q, k, v), compiled(q, k, v)
    uppers = [torch.randn_like(result) for result in expected]
    for one, other in zip(found, expected):
        assert relative(one, other) < 1e-6
    gradients = torch.autograd.grad(found, (q, k, v), uppers)
    for one, other in zip(gradients, torch.autograd.grad(expected, (q, k, v), uppers)):
        assert relative(one, other) < 1e-6


def test_second_derivatives_are_refused():
    q = rows(1, 4, 2, 3)
    (gradient,) = torch.autograd.grad(lt.linear_attention(q, q, q).sum(), q, create_graph=True)
    with pytest.raises(RuntimeError, match="float64"):
        gradient.sum().backward()


def test_meta_tensors_have_shapes():
    q = torch.empty(2, 9, 2, 8, device="meta")
    out, state = lt.linear_attention(q, q, q, mask="causal", return_state=True)
    assert out.shape == q.shape and state.shape == lt.linear_state(2, 2, 8).shape
