"""Every operator against a formula in plain PyTorch, written here without the package's own references."""

import copy

import pytest
import torch
from torch_support import compare, relative, rows

import linnet
import linnet.torch as lt

B, N, H, E, M = 2, 37, 3, 8, 6

VISIBLE = torch.rand(B, N, N, generator=torch.Generator().manual_seed(3)) < 0.4
MASKS = {
    "full": ({}, lambda b, i, j: True),
    "causal": ({"mask": "causal"}, lambda b, i, j: j <= i),
    "prefix": ({"prefix": [5, 20]}, lambda b, i, j: j <= max(i, [5, 20][b] - 1)),
    "window": ({"window": (6, 2)}, lambda b, i, j: i - 6 <= j <= i + 2),
    "intervals": (
        {"intervals": ([i // 2 for i in range(N)], [i // 2 + 3 for i in range(N)])},
        lambda b, i, j: i // 2 <= j < i // 2 + 3,
    ),
    "key lengths": ({"key_lengths": [N, 11]}, lambda b, i, j: j < [N, 11][b]),
    "causal, key lengths": ({"mask": "causal", "key_lengths": torch.tensor([9, N])}, lambda b, i, j: j <= i and j < [9, N][b]),
    "causal, segments": ({"mask": "causal", "segments": [0, 10, 11, N]}, lambda b, i, j: j <= i and segment(i) == segment(j)),
    "segments of each entry": (
        {"segments": [[0, N], [0, 10, 11, N]]},
        lambda b, i, j: b == 0 or segment(i) == segment(j),
    ),
    "boolean": ({"mask": VISIBLE}, lambda b, i, j: bool(VISIBLE[b, i, j])),
    "boolean for all": ({"mask": VISIBLE[0]}, lambda b, i, j: bool(VISIBLE[0, i, j])),
    "boolean for all heads": ({"mask": VISIBLE[:, None]}, lambda b, i, j: bool(VISIBLE[b, i, j])),
}


def segment(i):
    return (i >= 10) + (i >= 11)


def matrix(sees):
    """float64 [B, 1, N, N] of a function of entry, query and key."""
    return torch.tensor([[[[float(sees(b, i, j)) for j in range(N)] for i in range(N)]] for b in range(B)], dtype=torch.float64)


def linear_formula(visible, phi=lambda x: torch.nn.functional.elu(x) + 1, epsilon=1e-6):
    def formula(q, k, v, gamma=None):
        weights = torch.einsum("bihe,bjhe->bhij", phi(q), phi(k)) * visible
        if gamma is not None:
            age = (torch.arange(N)[:, None] - torch.arange(N)).clamp(min=0)
            weights = weights * gamma[:, None, None] ** age
        return torch.einsum("bhij,bjhm->bihm", weights / (weights.sum(-1, keepdim=True) + epsilon), v)

    return formula


def softmax_formula(visible, scale=E**-0.5):
    def formula(q, k, v):
        weights = torch.exp(scale * torch.einsum("bihe,bjhe->bhij", q, k)) * visible
        total = weights.sum(-1, keepdim=True)
        return torch.einsum("bhij,bjhm->bihm", weights / torch.where(total == 0, 1.0, total), v)

    return formula


def inputs():
    return rows(B, N, H, E), rows(B, N, H, E), rows(B, N, H, M)


@pytest.mark.parametrize("name", MASKS)
def test_linear_attention_with_masks(name):
    arguments, sees = MASKS[name]
    compare(lambda q, k, v: lt.linear_attention(q, k, v, **arguments), linear_formula(matrix(sees)), inputs())


@pytest.mark.parametrize("name", MASKS)
def test_softmax_attention_with_masks(name):
    arguments, sees = MASKS[name]
    compare(lambda q, k, v: lt.softmax_attention(q, k, v, **arguments), softmax_formula(matrix(sees)), inputs())


@pytest.mark.parametrize("name", MASKS)
def test_float64_has_the_same_masks(name):
    arguments, sees = MASKS[name]
    q, k, v = (tensor.detach().double() for tensor in inputs())
    visible = matrix(sees)
    assert relative(lt.softmax_attention(q, k, v, **arguments), softmax_formula(visible)(q, k, v)) < 1e-12
    assert relative(lt.linear_attention(q, k, v, **arguments), linear_formula(visible)(q, k, v)) < 1e-12


@pytest.mark.parametrize(
    ("name", "phi"),
    [("relu", torch.relu), ("squared-relu", lambda x: torch.relu(x) ** 2), ("exp", torch.exp)],
)
def test_feature_maps(name, phi):
    formula = linear_formula(matrix(lambda b, i, j: j <= i), phi)
    compare(lambda q, k, v: lt.linear_attention(q, k, v, mask="causal", feature_map=name), formula, inputs())


def test_identity_map_without_a_denominator():
    def formula(q, k, v):
        return torch.einsum("bihe,bjhe,bjhm->bihm", q, k, v)

    compare(lambda q, k, v: lt.linear_attention(q, k, v, feature_map="identity", normalise="none"), formula, inputs())


@pytest.mark.parametrize("kind", ["auto", "orthogonal", "independent", "hadamard"])
@pytest.mark.parametrize("name", ["favor", "favor-hyperbolic"])
def test_favor_attention(name, kind):
    options = {"feature_map": name, "features": 32, "directions": kind, "seed": 5}
    directions = torch.from_numpy(linnet._core.random_draws(name, E, 32, kind, 5)["directions"]).double().reshape(-1, E)

    def phi(x):
        x = x * E**-0.25
        products = x @ directions.T
        if name == "favor-hyperbolic":
            products = torch.cat([products, -products], -1)
        return torch.exp(products - (x * x).sum(-1, keepdim=True) / 2)

    formula = linear_formula(matrix(lambda b, i, j: j <= i), phi, epsilon=0)
    compare(lambda q, k, v: lt.favor_attention(q, k, v, mask="causal", **options), formula, inputs(), 3e-5)


def test_decay():
    gamma = torch.tensor([0.5, 0.9, 1.0]).requires_grad_()
    formula = linear_formula(matrix(lambda b, i, j: j <= i))
    compare(lambda q, k, v, g: lt.linear_attention(q, k, v, mask="causal", decay=g), formula, (*inputs(), gamma))


@pytest.mark.parametrize("name", ["elu", "favor"])
def test_a_state_carries_the_sequence_and_its_gradients(name):
    """Two calls with a state between them give what one call gives, values and gradients."""
    gamma = torch.tensor([0.5, 0.9, 1.0]).requires_grad_()
    q, k, v = inputs()
    options = {"mask": "causal", "decay": gamma if name == "elu" else None, "feature_map": name}
    whole, last = lt.linear_attention(q, k, v, return_state=True, **options)
    first, state = lt.linear_attention(q[:, :20], k[:, :20], v[:, :20], return_state=True, **options)
    rest, final = lt.linear_attention(q[:, 20:], k[:, 20:], v[:, 20:], initial_state=state, return_state=True, **options)
    assert relative(torch.cat([first, rest], 1), whole) < 1e-5
    wanted = (q, k, v, gamma) if name == "elu" else (q, k, v)
    upper = torch.randn_like(whole)
    outputs, uppers = ([whole], [upper]), ([first, rest], [upper[:, :20], upper[:, 20:]])
    if name == "elu":
        assert relative(final, last) < 1e-5
        upper_state = torch.randn_like(last)
        outputs, uppers = ([whole, last], [upper, upper_state]), ([first, rest, final], [*uppers[1], upper_state])
    expected = torch.autograd.grad(outputs[0], wanted, outputs[1])
    for found, exact in zip(torch.autograd.grad(uppers[0], wanted, uppers[1]), expected):
        assert relative(found, exact) < 1e-5


def test_the_numbers_of_a_state():
    q, k, v = (tensor.detach() for tensor in inputs())
    _, state = lt.linear_attention(q, k, v, mask="causal", return_state=True)
    s, z = lt.split_state(state, H, M)
    phi = torch.nn.functional.elu(k) + 1
    assert relative(s, torch.einsum("bjhf,bjhm->bhfm", phi, v)) < 1e-5
    assert relative(z, phi.sum(1)) < 1e-5


@pytest.mark.parametrize("name", ["elu", "favor"])
@pytest.mark.parametrize("gradient", [False, True])
def test_steps_give_what_the_parallel_form_gives(name, gradient):
    q, k, v = rows(B, N, H, E), rows(B, N, H, E), rows(B, N, H, M)
    gamma = torch.tensor([0.5, 0.9, 1.0]) if name == "elu" else None
    whole = lt.linear_attention(q, k, v, mask="causal", decay=gamma, feature_map=name)
    state = lt.linear_state(B, H, E, M, feature_map=name)
    outs = []
    with torch.set_grad_enabled(gradient):
        for i in range(N):
            out, state = lt.linear_attention_step(q[:, i], k[:, i], v[:, i], state, decay=gamma, feature_map=name)
            outs.append(out)
    outs = torch.stack(outs, 1)
    assert relative(outs, whole) < 1e-5
    if gradient:
        upper = torch.randn_like(whole)
        for found, exact in zip(torch.autograd.grad(outs, (q, k, v), upper), torch.autograd.grad(whole, (q, k, v), upper)):
            assert relative(found, exact) < 2e-5


def test_steps_continue_a_prompt_in_the_memory_of_its_state():
    q, k, v = (tensor.detach() for tensor in inputs())
    whole = lt.linear_attention(q, k, v, mask="causal")
    _, state = lt.linear_attention(q[:, :-2], k[:, :-2], v[:, :-2], mask="causal", return_state=True)
    kept = state.clone()
    for i in (N - 2, N - 1):
        out, after = lt.linear_attention_step(q[:, i], k[:, i], v[:, i], state)
        assert after is state
        assert relative(out, whole[:, i]) < 1e-5
    state.copy_(kept)
    out, _ = lt.linear_attention_step(q[:, -2], k[:, -2], v[:, -2], state)
    assert relative(out, whole[:, -2]) < 1e-5


def test_a_state_can_be_copied_and_stored(tmp_path):
    q, k, v = torch.randn(B, H, E), torch.randn(B, H, E), torch.randn(B, H, M)
    state = lt.linear_state(B, H, E, M)
    lt.linear_attention_step(q, k, v, state)
    torch.save(state, tmp_path / "state")
    copies = [copy.deepcopy(state), state.clone(), torch.load(tmp_path / "state")]
    out, _ = lt.linear_attention_step(q, k, v, state)
    for other in copies:
        assert torch.equal(lt.linear_attention_step(q, k, v, other)[0], out)
        assert torch.equal(other, state)


def test_linformer_attention():
    p, r = rows(H, 5, N + 3), rows(1, 5, N + 3)

    def formula(q, k, v, p, r):
        k = torch.einsum("hrj,bjhe->bhre", p[:, :, :N], k)
        v = torch.einsum("hrj,bjhm->bhrm", r[:, :, :N].expand(H, -1, -1), v)
        return torch.einsum("bhir,bhrm->bihm", torch.softmax(torch.einsum("bihe,bhre->bhir", q, k) * E**-0.5, -1), v)

    compare(lt.linformer_attention, formula, (*inputs(), p, r))


def test_linformer_attention_with_one_projection_and_padding():
    p = rows(1, 5, N)
    kept = (torch.arange(N)[None] < torch.tensor([[N], [9]]))[:, :, None, None]

    def formula(q, k, v, p):
        k = torch.einsum("rj,bjhe->bhre", p[0], k * kept)
        v = torch.einsum("rj,bjhm->bhrm", p[0], v * kept)
        return torch.einsum("bhir,bhrm->bihm", torch.softmax(torch.einsum("bihe,bhre->bhir", q, k) * E**-0.5, -1), v)

    compare(lambda q, k, v, p: lt.linformer_attention(q, k, v, p, key_lengths=[N, 9]), formula, (*inputs(), p))


@pytest.mark.parametrize("mask", ["full", "causal"])
def test_lsh_attention_of_one_bucket_sees_all_other_tokens(mask):
    others = matrix(lambda b, i, j: (j <= i or mask == "full") and (i != j or (mask == "causal" and i == 0)))

    def formula(q, v):
        return softmax_formula(others)(q, q / q.norm(dim=-1, keepdim=True), v)

    q, _, v = inputs()
    compare(lambda q, v: lt.lsh_attention(q, v, mask=mask, buckets=1, chunk=64), formula, (q, v))


@pytest.mark.parametrize(("left", "right"), [(4, 0), (1, 0), (3, 5), (100, 100)])
def test_local_attention(left, right):
    formula = softmax_formula(matrix(lambda b, i, j: i - left <= j <= i + right))
    compare(lambda q, k, v: lt.local_attention(q, k, v, left=left, right=right), formula, inputs())


@pytest.mark.parametrize("pattern", ["strided", "fixed"])
def test_strided_attention(pattern):
    def sees(b, i, j):
        if pattern == "strided":
            return j <= i and (i - j < 4 or (i - j) % 4 == 0)
        return j <= i and (i // 4 == j // 4 or j % 4 >= 3)

    options = {"pattern": pattern, "stride": 4, "summary": 1}
    formula = softmax_formula(matrix(sees))
    compare(lambda q, k, v: lt.strided_attention(q, k, v, **options), formula, inputs())
    exact = [tensor.detach().double() for tensor in inputs()]
    assert relative(lt.strided_attention(*exact, **options), formula(*exact)) < 1e-12


@pytest.mark.parametrize("function", [lt.linear_attention, lt.softmax_attention, lt.local_attention])
def test_both_layouts_share_memory_and_agree(function):
    q, k, v = inputs()
    out = function(q, k, v, mask="causal")
    turned = [tensor.detach().transpose(1, 2).contiguous().requires_grad_() for tensor in (q, k, v)]
    other = function(*turned, mask="causal", layout="bhnd")
    assert other.shape == (B, H, N, M) and other.is_contiguous() and out.is_contiguous()
    assert torch.equal(other.transpose(1, 2), out)
    upper = torch.randn_like(out)
    expected = torch.autograd.grad(out, (q, k, v), upper)
    for found, exact in zip(torch.autograd.grad(other, turned, upper.transpose(1, 2)), expected):
        assert torch.equal(found.transpose(1, 2), exact)


def test_parts_of_a_projection_are_read_in_place():
    qkv = rows(B, N, 3 * H * E)
    q, k, v = (part.unflatten(-1, (H, E)) for part in qkv.chunk(3, -1))
    expected = lt.linear_attention(*(part.contiguous() for part in (q, k, v)), mask="causal")
    assert torch.equal(lt.linear_attention(q, k, v, mask="causal"), expected)


def test_gradients_of_a_sum_have_no_strides():
    q, k, v = inputs()
    lt.softmax_attention(q, k, v).sum().backward()
    found = q.grad.clone()
    q.grad = None
    out = lt.softmax_attention(q, k, v)
    out.backward(torch.ones_like(out))
    assert torch.equal(found, q.grad)


@pytest.mark.parametrize("function", [lt.linear_attention, lt.softmax_attention])
def test_bfloat16(function):
    """The error is at most twice that of rounding inputs and output."""
    q, k, v = (tensor.detach().bfloat16() for tensor in inputs())
    out = function(q, k, v, mask="causal")
    exact = function(q.double(), k.double(), v.double(), mask="causal")
    assert out.dtype == torch.bfloat16
    assert relative(out, exact) < 2 * relative(exact.bfloat16(), exact)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(function(q.float(), k.float(), v.float(), mask="causal"), out)


def test_autocast_to_float16_computes_in_float32():
    q, k, v = (tensor.detach() for tensor in inputs())
    halves = [tensor.half() for tensor in (q, k, v)]
    state, expected = lt.linear_state(B, H, E, M), lt.linear_attention(q, k, v)
    with torch.autocast("cpu", dtype=torch.float16):
        assert torch.equal(lt.linear_attention(q, k, v), expected)
        out = lt.softmax_attention(*halves)
        row, _ = lt.linear_attention_step(*(tensor[:, 0] for tensor in halves), state)
    assert out.dtype == row.dtype == torch.float32
    assert torch.equal(out, lt.softmax_attention(*(tensor.float() for tensor in halves)))
    assert relative(row, halves[2][:, 0]) < 1e-5


def test_empty_sequences():
    q, k, v = (torch.zeros(2, 0, H, E).requires_grad_() for _ in range(3))
    out = lt.linear_attention(q, k, v, mask="causal")
    out.sum().backward()
    assert out.shape == (2, 0, H, E)


def test_threads_do_not_change_results():
    q, k, v = inputs()
    threads = torch.get_num_threads()
    try:
        results = []
        for count in (1, 2):
            torch.set_num_threads(count)
            results.append(lt.linear_attention(q, k, v, mask="causal"))
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(*results)


@pytest.mark.parametrize(
    ("change", "error", "part"),
    [
        (lambda q, k, v: lt.linear_attention(q.numpy(), k, v), TypeError, "q as a torch.Tensor, got ndarray"),
        (lambda q, k, v: lt.linear_attention(q.half(), k.half(), v.half()), TypeError, "(.bfloat16() converts), got torch.float"),
        (lambda q, k, v: lt.linear_attention(q, k, v, feature_map=torch.relu), TypeError, "pass feature_map='identity'"),
        (lambda q, k, v: lt.softmax_attention(q, k, v, mask=torch.ones(2, N).bool()), ValueError, "(padded keys: key_lengths=)"),
        (lambda q, k, v: lt.softmax_attention(q, k, v, mask=torch.ones(2, H, N, N).bool()), TypeError, "mask of bool"),
        (lambda q, k, v: lt.linear_attention(q.long(), k, v), TypeError, "int64"),
        (lambda q, k, v: lt.softmax_attention(q.double(), k, v), TypeError, "one dtype"),
        (lambda q, k, v: lt.softmax_attention(q[0], k, v), ValueError, "q of 4 dimensions"),
        (lambda q, k, v: lt.softmax_attention(q, k[:, :, :2], v), ValueError, "k [B, S, H, E]"),
        (lambda q, k, v: lt.softmax_attention(q.mT.contiguous().mT, k, v), ValueError, "last axis is contiguous"),
        (lambda q, k, v: lt.softmax_attention(q, k, v, layout="nbhd"), ValueError, "layout 'bnhd' or 'bhnd'"),
        (lambda q, k, v: lt.softmax_attention(q, k, v, mask="casual"), ValueError, "casual"),
        (lambda q, k, v: lt.softmax_attention(q, k, v, mask=torch.ones(3)), TypeError, "mask of bool"),
        (lambda q, k, v: lt.softmax_attention(q, k, v, mask=torch.ones(3, 4).bool()), ValueError, "a mask [2 or 1, 37, 37]"),
        (lambda q, k, v: lt.softmax_attention(q, k, v, key_lengths=[N + 1, 0]), linnet.Error, "key lengths"),
        (lambda q, k, v: lt.softmax_attention(q, k[:, :4], v[:, :4], mask="causal"), ValueError, "as many queries as keys"),
        (lambda q, k, v: lt.linear_attention(q, k, v, decay=torch.ones(H)), ValueError, "causal mask with a decay"),
        (lambda q, k, v: lt.linear_attention(q, k, v, mask="causal", decay=torch.ones(2)), ValueError, "decay [3]"),
        (lambda q, k, v: lt.favor_attention(q, k, v, mask="causal", features=-1), ValueError, "features of at least 0"),
        (lambda q, k, v: lt.linear_attention(q, k, v, return_state=True), ValueError, "causal or prefix"),
        (lambda q, k, v: lt.linear_attention(q, k, v, feature_map="elo"), ValueError, "elu"),
        (lambda q, k, v: lt.linear_attention(q, k, v, mask="causal", initial_state=q[0, 0]), ValueError, "initial_state"),
        (lambda q, k, v: lt.lsh_attention(q.double(), v.double()), TypeError, "float64"),
        (lambda q, k, v: lt.linformer_attention(q, k, v, torch.ones(1, 4, 5)), ValueError, "projections"),
        (lambda q, k, v: lt.linear_attention_step(q[:, 0], k[:, 0], v[:, 0], torch.zeros(2, 4)), ValueError, "state"),
        (lambda q, k, v: lt.linear_attention(q.to_sparse(), k, v), ValueError, "dense"),
        (lambda q, k, v: lt.linear_attention(q, k, v, feature_map="elu;seed=1"), ValueError, "feature_map of elu"),
        (lambda q, k, v: lt.favor_attention(q, k, v, features=2.5), TypeError, "features as a whole number"),
        (lambda q, k, v: lt.softmax_attention(q, k, v, scale="1"), TypeError, "scale as a number"),
        (lambda q, k, v: lt.local_attention(q, k, v, left=-1), ValueError, "left of at least 0"),
        (lambda q, k, v: lt.strided_attention(q, k, v, pattern="x"), ValueError, "pattern of strided, fixed"),
    ],
)  # fmt: skip
def test_errors_are_one_sentence(change, error, part):
    with pytest.raises(error) as caught:
        change(*(tensor.detach() for tensor in inputs()))
    assert part in str(caught.value)


@pytest.mark.parametrize("feature_map", ["favor", "random-exp"])
def test_decay_of_a_log_scaled_map(feature_map):
    given = [tensor.detach() for tensor in inputs()] + [torch.linspace(0.6, 1, H)]
    weights = torch.linspace(-1, 1, given[2].numel()).reshape(given[2].shape)

    def run(dtype):
        tensors = [tensor.detach().to(dtype).requires_grad_() for tensor in given]
        out = lt.linear_attention(*tensors[:3], mask="causal", decay=tensors[3], feature_map=feature_map)
        (out * weights.to(dtype)).sum().backward()
        return [out.detach(), *(tensor.grad for tensor in tensors)]

    for found, expected in zip(run(torch.float32), run(torch.float64)):
        assert (found - expected).norm() < 1e-4 * expected.norm() + 1e-5
    q, k, v, gamma = given
    state = lt.linear_state(len(q), H, q.shape[-1], v.shape[-1], feature_map=feature_map)
    with torch.no_grad():
        whole = lt.linear_attention(q, k, v, mask="causal", decay=gamma, feature_map=feature_map)
        for i in range(q.shape[1]):
            out, state = lt.linear_attention_step(q[:, i], k[:, i], v[:, i], state, decay=gamma, feature_map=feature_map)
            assert (out - whole[:, i]).norm() < 1e-4 * whole[:, i].norm()


def test_scale():
    formula = softmax_formula(matrix(lambda b, i, j: True), 0.2)
    compare(lambda q, k, v: lt.softmax_attention(q, k, v, scale=0.2), formula, inputs())
