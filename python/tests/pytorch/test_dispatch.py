"""The operators as PyTorch's dispatcher, autograd and compiler see them."""

import pytest
import torch
from torch_support import relative, rows

import linnet
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


def test_gradcheck_with_hadamard_directions():
    q, k, v = (rows(1, 4, 2, 8, dtype=torch.float64) for _ in range(3))
    options = {"features": 8, "directions": "hadamard"}
    assert torch.autograd.gradcheck(lambda *x: lt.favor_attention(*x, **options), (q, k, v))

    def step(q, k, v):
        state = lt.linear_state(1, 2, 8, feature_map="random-tanh", features=8, dtype=torch.float64)
        return lt.linear_attention_step(q[:, 0], k[:, 0], v[:, 0], state, feature_map="random-tanh", **options)

    assert torch.autograd.gradcheck(step, (q, k, v))


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


SAMPLES = 3
VISIBLE = torch.rand(2, 9, 9, generator=torch.Generator().manual_seed(3)) < 0.5
TRANSFORMED = {
    "causal": lambda q, k, v: lt.linear_attention(q, k, v, mask="causal"),
    "heads first": lambda q, k, v: lt.linear_attention(*(x.transpose(1, 2) for x in (q, k, v)), layout="bhnd"),
    "prefix": lambda q, k, v: lt.softmax_attention(q, k, v, prefix=[3, 7]),
    "intervals": lambda q, k, v: lt.linear_attention(q, k, v, intervals=([0] * 9, [5] * 9)),
    "key lengths": lambda q, k, v: lt.softmax_attention(q, k, v, key_lengths=[9, 5]),
    "segments": lambda q, k, v: lt.linear_attention(q, k, v, segments=[0, 9]),
    "segments of each entry": lambda q, k, v: lt.linear_attention(q, k, v, segments=[[0, 9], [0, 2, 9]]),
    "boolean": lambda q, k, v: lt.softmax_attention(q, k, v, mask=VISIBLE),
    "lsh": lambda q, k, v: lt.lsh_attention(q, v, chunk=4),
    "state": lambda q, k, v: lt.linear_attention(q, k, v, mask="causal", return_state=True)[1],
    "decay": lambda q, k, v: lt.linear_attention(q, k, v, mask="causal", decay=q[0, 0, :, 0].sigmoid()),
}


@pytest.mark.parametrize("segments", [[0, 4, 9], [[0, 9], [0, 2, 9]], ([0, 9], torch.tensor([0, 2, 9]))], ids=str)
def test_lists_of_segments_do_not_break_the_graph(segments):
    q = rows(2, 9, 2, 8)
    compiled = torch.compile(lambda q: lt.linear_attention(q, q, q, segments=segments), fullgraph=True, backend="aot_eager")
    assert relative(compiled(q), lt.linear_attention(q, q, q, segments=segments)) < 1e-6


FLOAT64 = {
    **{name: call for name, call in TRANSFORMED.items() if name != "lsh"},
    "window": lambda q, k, v: lt.local_attention(q, k, v, left=2, right=1),
    "strided": lambda q, k, v: lt.strided_attention(q, k, v, stride=4),
    "linformer": lambda q, k, v: lt.linformer_attention(q, k, v, k[:1, :, 0, :3].mT),
    "array": lambda q, k, v: lt.softmax_attention(q, k, v, mask=VISIBLE.numpy()),
    "random features": lambda q, k, v: lt.favor_attention(q, k, v, mask="causal"),
    "step": lambda q, k, v: lt.linear_attention_step(
        q[:, 0], k[:, 0], v[:, 0], lt.linear_attention(q, k, v, mask="causal", return_state=True)[1]
    )[0],
}


@pytest.mark.parametrize("name", FLOAT64)
def test_float64_does_not_depend_on_defaults(name):
    q, k, v = (rows(2, 9, 2, 8, dtype=torch.float64, gradient=False) for _ in range(3))
    expected = FLOAT64[name](q, k, v)
    torch.set_default_dtype(torch.float64)
    try:
        assert torch.equal(FLOAT64[name](q, k, v), expected)
    finally:
        torch.set_default_dtype(torch.float32)
    with torch.device("meta"):
        assert torch.equal(FLOAT64[name](q, k, v), expected)
    assert FLOAT64[name](*(x.to("meta") for x in (q, k, v))).shape == expected.shape


def test_second_derivatives_are_refused():
    q = rows(1, 4, 2, 3)
    (gradient,) = torch.autograd.grad(lt.linear_attention(q, q, q).sum(), q, create_graph=True)
    with pytest.raises(RuntimeError, match="float64"):
        gradient.sum().backward()


@pytest.mark.parametrize("name", TRANSFORMED)
@pytest.mark.filterwarnings("error")
def test_transforms_of_functions(name):
    """Gradients of each sample, in both orders of the transforms."""
    given = [rows(SAMPLES, 2, 9, 2, 8) for _ in range(3)]

    def loss(q, k, v):
        return TRANSFORMED[name](q, k, v).square().sum()

    exact = torch.autograd.grad(sum(loss(*sample) for sample in zip(*given)), given, allow_unused=name == "lsh")
    with torch.no_grad():
        each = torch.func.vmap(torch.func.grad(loss, argnums=(0, 1, 2)))(*given)
        together = torch.func.grad(lambda *x: torch.func.vmap(loss)(*x).sum(), argnums=(0, 1, 2))(*given)
    for found, other, expected in zip(each, together, exact):
        expected = torch.zeros_like(found) if expected is None else expected
        assert relative(found, expected) < 1e-5
        assert relative(other, expected) < 1e-5


def test_gradients_of_parameters_for_each_sample():
    projection, x = torch.nn.Linear(8, 24), torch.randn(SAMPLES, 9, 8)

    def loss(parameters, sample):
        qkv = torch.func.functional_call(projection, parameters, (sample[None],)).unflatten(-1, (3, 2, 4))
        return lt.linear_attention(*qkv.unbind(2), mask="causal").square().sum()

    parameters = {name: tensor.detach() for name, tensor in projection.named_parameters()}
    found = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0))(parameters, x)
    for i in range(SAMPLES):
        exact = torch.autograd.grad(loss(dict(projection.named_parameters()), x[i]), list(projection.parameters()))
        for tensor, expected in zip(found.values(), exact):
            assert relative(tensor[i], expected) < 1e-5


def test_mapped_masks_and_batched_gradients():
    q, k, v = (rows(SAMPLES, 2, 9, 2, 8) for _ in range(3))
    lengths, visible = torch.tensor([[9, 3], [5, 5], [1, 9]]), torch.rand(SAMPLES, 2, 9, 9) < 0.5
    for masks, name in ((lengths, "key_lengths"), (visible, "mask")):
        found = torch.func.vmap(lambda q, k, v, x, name=name: lt.softmax_attention(q, k, v, **{name: x}))(q, k, v, masks)
        for i in range(SAMPLES):
            assert relative(found[i], lt.softmax_attention(q[i], k[i], v[i], **{name: masks[i]})) < 1e-6
    out, uppers = lt.linear_attention(q[0], k[0], v[0]), torch.randn(SAMPLES, *v[0].shape)
    (found,) = torch.autograd.grad(out, q, uppers, is_grads_batched=True, retain_graph=True)
    for i in range(SAMPLES):
        assert relative(found[i], torch.autograd.grad(out, q, uppers[i], retain_graph=True)[0]) < 1e-6


@pytest.mark.skipif(not hasattr(torch.library, "register_vmap"), reason="PyTorch 2.5")
@pytest.mark.parametrize("stride", [1, 2])
def test_mapped_steps(stride):
    q, k, v = (rows(SAMPLES, 2, 2, 8, gradient=False) for _ in range(3))
    gamma = torch.tensor([0.5, 0.9])
    each = [lt.linear_state(2, 2, 8) for _ in range(SAMPLES)]
    states = torch.zeros(stride * SAMPLES, *each[0].shape)[::stride]

    def step(q, k, v, state):
        return lt.linear_attention_step(q, k, v, state, decay=gamma)[0]

    for _ in range(2):
        found = torch.func.vmap(step)(q, k, v, states)
        for i in range(SAMPLES):
            assert relative(found[i], step(q[i], k[i], v[i], each[i])) < 1e-6
            assert relative(states[i], each[i]) < 1e-6
    with pytest.raises(linnet.Error, match="a state of each sample"):
        torch.func.vmap(step, in_dims=(0, 0, 0, None))(q, k, v, each[0])


def test_forward_mode_is_refused_under_transforms_too():
    q = rows(1, 4, 2, 3, gradient=False)
    with pytest.raises(linnet.Error, match="no derivatives in forward mode"):
        torch.func.hessian(lambda x: lt.softmax_attention(x, x, x).sum())(q)


def test_meta_tensors_have_shapes():
    q = torch.empty(2, 9, 2, 8, device="meta")
    out, state = lt.linear_attention(q, q, q, mask="causal", return_state=True)
    assert out.shape == q.shape and state.shape == lt.linear_state(2, 2, 8).shape
