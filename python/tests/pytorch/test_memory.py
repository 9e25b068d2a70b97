"""Tensors whose memory, type, device or derivative is not what the operators read."""

import pytest
import torch
from torch.autograd import forward_ad
from torch_support import rows

import linnet
import linnet.torch as lt
from linnet.torch._functions import linear_options

SHAPE = (2, 12, 3, 4)
FUNCTIONS = {
    "linear": lt.linear_attention,
    "softmax": lt.softmax_attention,
    "local": lambda q, k, v: lt.local_attention(q, k, v, left=3, right=2),
    "lsh": lambda q, k, v: lt.lsh_attention(q, v, chunk=4),
    "linformer": lambda q, k, v: lt.linformer_attention(q, k, v, torch.ones(1, 5, 12)),
}


def inputs(gradient=False):
    return [rows(*SHAPE, gradient=gradient) for _ in range(3)]


def token():
    return [rows(2, 3, 4, gradient=False) for _ in range(3)]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_tensors_without_memory_are_refused(name):
    q, k, v = inputs()
    q.untyped_storage().resize_(0)
    with pytest.raises(linnet.Error, match="without memory"):
        FUNCTIONS[name](q, k, v)


def test_states_and_masks_without_memory_are_refused():
    q, k, v = inputs()
    state = lt.linear_state(2, 3, 4)
    state.untyped_storage().resize_(0)
    with pytest.raises(linnet.Error, match="without memory"):
        lt.linear_attention_step(q[:, 0], k[:, 0], v[:, 0], state)
    mask = torch.ones(1, 12, 12, dtype=torch.bool)
    mask.untyped_storage().resize_(0)
    with pytest.raises(linnet.Error, match="without memory"):
        lt.softmax_attention(q, k, v, mask=mask)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_zero_and_negative_tensors_are_what_they_stand_for(name):
    q, k, v = inputs()
    function = FUNCTIONS[name]
    assert torch.equal(function(torch._efficientzerotensor(SHAPE), k, v), function(torch.zeros(SHAPE), k, v))
    assert torch.equal(function(q, k, torch._neg_view(v)), function(q, k, -v))
    leaf = v.clone().requires_grad_()
    function(q, k, leaf).backward(torch._efficientzerotensor(SHAPE))
    assert torch.equal(leaf.grad, torch.zeros(SHAPE))


def test_gradients_that_are_not_dense_are_refused():
    out = lt.linear_attention(*inputs(gradient=True))
    with pytest.raises(linnet.Error, match="dense gradients"):
        out.backward(torch.ones(SHAPE).to_sparse())


def raw(q, k, v, initial=None):
    return torch.ops.linnet.attention(
        q, k, v, None, None, None, initial, "causal", 0, 0, None, None, None, None, linear_options(4), False, False
    )


def test_operators_refuse_other_types():
    q, k, v = inputs()
    with pytest.raises(TypeError, match="float32 or of bfloat16"):
        raw(q.half(), k.half(), v.half())
    with pytest.raises(TypeError, match="float32 or of bfloat16"):
        raw(q, k, v.double())
    with pytest.raises(TypeError, match="states of float32"):
        raw(q, k, v, torch.zeros(2, 60).double())
    wide = rows(2, 12, 3, 8, gradient=False)[..., ::2]
    assert torch.equal(raw(q, k, wide)[0], raw(q, k, wide.contiguous())[0])
    with pytest.raises(TypeError, match="of float32"):
        torch.ops.linnet.attention_step(*token(), torch.zeros(2, 60).half(), None, linear_options(4))
    out, normaliser, _ = raw(q, k, v)
    with pytest.raises(TypeError, match="its gradient"):
        torch.ops.linnet.attention_backward(
            out.half(), None, q, k, v, out, normaliser, None, None, None, None,
            "causal", 0, 0, None, None, None, None, linear_options(4), False,
        )  # fmt: skip


def test_exported_programs_refuse_other_types():
    class Attend(torch.nn.Module):
        def forward(self, q, k, v):
            return lt.linear_attention(q, k, v)

    q, k, v = inputs()
    program = torch.export.export(Attend(), (q, k, v)).module()
    assert torch.equal(program(q, k, v), lt.linear_attention(q, k, v))
    with pytest.raises(TypeError, match="float32 or of bfloat16"):
        program(q.double(), k.double(), v.double())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_tensors_of_two_devices_are_refused(dtype):
    q, k, v = (tensor.to(dtype) for tensor in inputs())
    state = lt.linear_state(2, 3, 4, dtype=dtype)
    one = [tensor[:, 0] for tensor in (q, k, v)]
    gamma = torch.full((3,), 0.5)
    for call in (
        lambda: lt.linear_attention(q, k.to("meta"), v),
        lambda: lt.linear_attention(q.to("meta"), k, v),
        lambda: lt.softmax_attention(q, k, v.to("meta")),
        lambda: lt.linear_attention(q, k, v, mask="causal", decay=gamma.to("meta")),
        lambda: lt.linear_attention(q, k, v, mask="causal", initial_state=state.to("meta")),
        lambda: lt.linformer_attention(q, k, v, torch.ones(1, 5, 12, device="meta")),
        lambda: lt.linear_attention_step(*one, state.to("meta")),
        lambda: lt.linear_attention_step(one[0].to("meta"), *one[1:], state),
        lambda: lt.linear_attention_step(*one, state, decay=gamma.to("meta")),
    ):
        with pytest.raises(linnet.Error, match="on (cpu|meta)"):
            call()


def test_steps_count_as_changes_of_their_state():
    state = lt.linear_state(2, 3, 4) + 1
    weights = torch.ones(60, requires_grad=True)
    loss = (state * weights).sum()
    with torch.no_grad():
        lt.linear_attention_step(*token(), state)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()
    other = lt.linear_state(2, 3, 4)
    torch.ops.linnet.attention_step(*token(), other, None, linear_options(4))
    assert other._version > 0


def test_states_of_inference_mode():
    with torch.inference_mode():
        state = lt.linear_state(2, 3, 4)
        lt.linear_attention_step(*token(), state)
    with pytest.raises(linnet.Error, match="inference mode"):
        lt.linear_attention_step(*token(), state)


def test_a_state_may_be_resized():
    state = lt.linear_state(4, 3, 4)
    lt.linear_attention_step(*[rows(4, 3, 4, gradient=False) for _ in range(3)], state)
    given, state = token(), state.resize_(2, 60)
    copy = state.clone()
    assert torch.equal(lt.linear_attention_step(*given, state)[0], lt.linear_attention_step(*given, copy)[0])
    assert torch.equal(state, copy)


@pytest.mark.parametrize(
    ("name", "made", "function"),
    [
        ("mask", lambda: torch.ones(12, 12, dtype=torch.bool), lt.softmax_attention),
        ("key_lengths", lambda: torch.tensor([12, 9]), lt.softmax_attention),
        ("prefix", lambda: torch.tensor([3, 3]), lt.linear_attention),
        ("segments", lambda: torch.tensor([0, 3, 12]), lt.linear_attention),
        ("key_lengths", lambda: torch.tensor([12, 9]), lambda *x, **m: lt.linformer_attention(*x, torch.ones(1, 5, 12), **m)),
    ],
)
def test_masks_that_change_before_the_gradient(name, made, function):
    given, mask = inputs(gradient=True), made()
    function(*given, **{name: mask.clone()}).sum().backward()
    out = function(*given, **{name: mask})
    mask.fill_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()


@pytest.mark.parametrize("name", FUNCTIONS)
def test_forward_mode_is_refused(name):
    q, k, v = inputs()
    with pytest.raises(linnet.Error, match="forward mode"):
        torch.func.jvp(lambda v: FUNCTIONS[name](q, k, v), (v,), (v,))
    with forward_ad.dual_level():
        FUNCTIONS[name](q, k, v)
        with pytest.raises(linnet.Error, match="forward mode"):
            FUNCTIONS[name](q, k, forward_ad.make_dual(v, v))
    with forward_ad.dual_level(), pytest.raises(linnet.Error, match="forward mode"):
        one = token()
        lt.linear_attention_step(one[0], one[1], forward_ad.make_dual(one[2], one[2]), lt.linear_state(2, 3, 4))


def test_float64_has_derivatives_in_forward_mode():
    q, k, v = (tensor.double() for tensor in inputs())
    _, found = torch.func.jvp(lambda v: lt.linear_attention(q, k, v), (v,), (v,))
    assert torch.allclose(found, lt.linear_attention(q, k, v))
