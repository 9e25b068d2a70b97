"""The modules of fast-transformers: names of parameters, values and recurrent forms."""

import argparse
import math

import pytest
import torch
from torch_support import relative

import linnet
from linnet.torch.fast_transformers.attention import (
    AttentionLayer,
    CausalLinearAttention,
    FavorAttention,
    FullAttention,
    LinearAttention,
    LocalAttention,
    ReformerAttention,
)
from linnet.torch.fast_transformers.attention_registry import (
    AttentionRegistry,
    Bool,
    Callable,
    Choice,
    Float,
    Int,
    Optional,
    RecurrentAttentionRegistry,
    RecurrentCrossAttentionRegistry,
    Spec,
)
from linnet.torch.fast_transformers.builders import (
    AttentionBuilder,
    RecurrentAttentionBuilder,
    RecurrentCrossAttentionBuilder,
    RecurrentDecoderBuilder,
    RecurrentEncoderBuilder,
    TransformerDecoderBuilder,
    TransformerEncoderBuilder,
)
from linnet.torch.fast_transformers.causal_product import causal_dot_product
from linnet.torch.fast_transformers.events import AttentionEvent, EventDispatcher, QKVEvent
from linnet.torch.fast_transformers.feature_maps import (
    ActivationFunctionFeatureMap,
    Favor,
    GeneralizedRandomFeatures,
    RandomFourierFeatures,
    SmoothedRandomFourierFeatures,
    elu_feature_map,
)
from linnet.torch.fast_transformers.local_product import local_dot_product, local_weighted_average
from linnet.torch.fast_transformers.masking import BaseMask, FullMask, LengthMask, TriangularCausalMask
from linnet.torch.fast_transformers.recurrent.attention import (
    RecurrentAttentionLayer,
    RecurrentCrossAttentionLayer,
    RecurrentCrossFullAttention,
    RecurrentCrossLinearAttention,
    RecurrentFullAttention,
    RecurrentLinearAttention,
)
from linnet.torch.fast_transformers.transformers import TransformerDecoder, TransformerEncoder, TransformerEncoderLayer
from linnet.torch.fast_transformers.utils import make_mirror

LENGTH = 20
SIZES = {
    "n_layers": 2,
    "n_heads": 2,
    "query_dimensions": 8,
    "value_dimensions": 8,
    "feed_forward_dimensions": 32,
    "dropout": 0.0,
}
OPTIONS = {"local": {"local_context": 6}, "linformer": {"linformer_length": 32}}

# The tensors of a checkpoint of fast-transformers 0.4.0, by their shapes.
_DENSE = {"linear1": (32, 16), "linear2": (16, 32)}
_NORMS = ("norm1", "norm2")


def checkpoint(attentions=("attention",), norms=_NORMS):
    tensors = {}
    for layer in range(2):
        for attention in attentions:
            for projection in ("query_projection", "key_projection", "value_projection", "out_projection"):
                tensors[f"layers.{layer}.{attention}.{projection}.weight"] = torch.randn(16, 16)
                tensors[f"layers.{layer}.{attention}.{projection}.bias"] = torch.randn(16)
        for name, shape in _DENSE.items():
            tensors[f"layers.{layer}.{name}.weight"] = torch.randn(shape)
            tensors[f"layers.{layer}.{name}.bias"] = torch.randn(shape[:1])
        for name in norms:
            tensors[f"layers.{layer}.{name}.weight"] = torch.randn(16)
            tensors[f"layers.{layer}.{name}.bias"] = torch.randn(16)
    return tensors | {"norm.weight": torch.randn(16), "norm.bias": torch.randn(16)}


def encoder(attention_type, builder=TransformerEncoderBuilder, **changed):
    given = {**SIZES, **OPTIONS.get(attention_type, {}), **changed}
    return builder.from_kwargs(attention_type=attention_type, **given).get()


@pytest.mark.parametrize("name", ["linear", "causal-linear", "full", "local", "reformer"])
def test_a_checkpoint_loads_strictly(name):
    tensors = checkpoint()
    module = encoder(name)
    module.load_state_dict(tensors, strict=True)
    assert list(module.state_dict()) == list(tensors)
    if name in ("linear", "causal-linear", "full"):
        encoder(name, RecurrentEncoderBuilder).load_state_dict(tensors, strict=True)


def test_a_checkpoint_of_a_decoder_loads_strictly():
    tensors = checkpoint(("self_attention", "cross_attention"), (*_NORMS, "norm3"))
    for builder in (TransformerDecoderBuilder, RecurrentDecoderBuilder):
        builder.from_kwargs(**SIZES).get().load_state_dict(tensors, strict=True)


def test_a_checkpoint_with_random_features_loads_strictly():
    tensors = checkpoint()
    for layer in range(2):
        tensors[f"layers.{layer}.attention.inner_attention.feature_map.omega"] = torch.randn(8, 8)
    module = encoder("linear", feature_map=Favor.factory(n_dims=16))
    module.load_state_dict(tensors, strict=True)


def masks(name):
    return None if name in ("linear", "linformer") else TriangularCausalMask(LENGTH)


@pytest.mark.parametrize(
    "name", ["linear", "causal-linear", "full", "softmax", "local", "reformer", "lsh", "favor", "strided", "linformer"]
)
def test_padding_changes_nothing(name):
    module = encoder(name).eval()
    x = torch.randn(2, LENGTH, 16)
    other = x.clone()
    other[1, 13:] = 5
    lengths = LengthMask(torch.tensor([LENGTH, 13]), max_len=LENGTH)
    one, two = (module(value, attn_mask=masks(name), length_mask=lengths) for value in (x, other))
    assert one.shape == x.shape
    assert relative(two[1, :13], one[1, :13]) < 1e-5
    one.sum().backward()
    assert all(
        parameter.grad is not None
        for part, parameter in module.named_parameters()
        if not (name in ("reformer", "lsh") and "key_proj" in part)
    )


def encoder_formula(tensors, x, heads=2):
    """The forward pass of an encoder of fast-transformers with causal linear attention, in plain PyTorch."""

    def dense(x, name):
        return x @ tensors[name + ".weight"].T + tensors[name + ".bias"]

    def norm(x, name):
        x = (x - x.mean(-1, keepdim=True)) / (x.var(-1, unbiased=False, keepdim=True) + 1e-5).sqrt()
        return x * tensors[name + ".weight"] + tensors[name + ".bias"]

    for layer in range(2):
        at = f"layers.{layer}."
        q, k, v = (dense(x, f"{at}attention.{part}_projection").unflatten(-1, (heads, -1)) for part in ("query", "key", "value"))
        q, k = (torch.nn.functional.elu(part) + 1 for part in (q, k))
        weights = torch.einsum("bihe,bjhe->bhij", q, k).tril()
        out = torch.einsum("bhij,bjhm->bihm", weights / (weights.sum(-1, keepdim=True) + 1e-6), v)
        x = norm(x + dense(out.flatten(-2), at + "attention.out_projection"), at + "norm1")
        x = norm(x + dense(torch.relu(dense(x, at + "linear1")), at + "linear2"), at + "norm2")
    return norm(x, "norm")


def test_an_encoder_computes_the_formula():
    tensors = checkpoint()
    module = encoder("causal-linear")
    module.load_state_dict(tensors)
    x = torch.randn(2, LENGTH, 16)
    expected = encoder_formula({name: tensor.double() for name, tensor in tensors.items()}, x.double())
    assert relative(module(x, attn_mask=TriangularCausalMask(LENGTH)), expected) < 1e-5


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("causal-linear", {}),
        ("full", {}),
        ("favor", {}),
        ("favor", {"favor_feature_map": "favor-hyperbolic"}),
        ("favor", {"favor_directions": "hadamard"}),
    ],
)
@pytest.mark.parametrize("gradient", [False, True])
def test_the_recurrent_encoder_computes_the_same(name, options, gradient):
    module, recurrent = encoder(name, **options).eval(), encoder(name, RecurrentEncoderBuilder, **options).eval()
    make_mirror(module, recurrent)
    assert recurrent.layers[0].linear1.weight is module.layers[0].linear1.weight
    x = torch.randn(2, LENGTH, 16)
    state, outs = None, []
    with torch.set_grad_enabled(gradient):
        for i in range(LENGTH):
            out, state = recurrent(x[:, i], state=state)
            outs.append(out)
    assert relative(torch.stack(outs, 1), module(x, attn_mask=TriangularCausalMask(LENGTH))) < 1e-5
    with pytest.warns(DeprecationWarning, match="state"):
        recurrent(x[:, 0], memory=state)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("linear", {}),
        ("causal-linear", {"feature_map": ActivationFunctionFeatureMap.factory(torch.sigmoid)}),
        ("favor", {"favor_feature_map": "favor-hyperbolic"}),
    ],
)
def test_the_recurrent_encoder_continues_prompts_of_one_pass(name, options):
    module, recurrent = encoder(name, **options).eval(), encoder(name, RecurrentEncoderBuilder, **options).eval()
    make_mirror(module, recurrent)
    x, lengths, prompt = torch.randn(2, LENGTH, 16), torch.tensor([13, 9]), 13
    with torch.no_grad():
        whole = module(x, attn_mask=TriangularCausalMask(LENGTH))
        masks = {"attn_mask": TriangularCausalMask(prompt), "length_mask": LengthMask(lengths, max_len=prompt)}
        y, state = module(x[:, :prompt], **masks, return_state=True)
        assert torch.equal(y, module(x[:, :prompt], **masks))
        for step in range(4):  # each stream goes on where its own prompt ends
            out, state = recurrent(x[[0, 1], lengths + step], state)
            assert relative(out, whole[[0, 1], lengths + step]) < 1e-5


def test_states_that_no_recurrent_form_continues_are_refused():
    x = torch.randn(2, LENGTH, 16)
    with pytest.raises(ValueError, match="with return_state, got FullAttention"):
        encoder("full")(x, attn_mask=TriangularCausalMask(LENGTH), return_state=True)
    with pytest.raises(ValueError, match="a causal or prefix mask with a state, got a mask of full"):
        encoder("linear")(x, return_state=True)


@pytest.mark.parametrize("name", ["reformer", "lsh", "favor"])
def test_random_directions_come_from_a_seed_and_the_layer(name):
    """A module that is made anew and loads a checkpoint computes what the one that was saved does."""
    options = {"bits": 2, "chunk_size": 4, "rounds": 1} if name != "favor" else {"favor_features": 16}
    x, mask = torch.randn(2, LENGTH, 16), TriangularCausalMask(LENGTH)
    torch.manual_seed(1)
    module = encoder(name, **options)
    torch.manual_seed(2)
    again = encoder(name, **options)
    again.load_state_dict(module.state_dict())
    assert torch.equal(again(x, attn_mask=mask), module(x, attn_mask=mask))
    other = encoder(name, **options, **{"favor_seed" if name == "favor" else "reformer_seed": 5})
    other.load_state_dict(module.state_dict())
    assert relative(other(x, attn_mask=mask), module(x, attn_mask=mask)) > 1e-3
    attentions = [layer.attention.inner_attention for layer in module.layers]
    assert [attention.layer for attention in attentions] == [0, 1]
    rows, lengths = torch.randn(2, LENGTH, 2, 8), LengthMask.whole(2, LENGTH)
    first, second = (attention(rows, rows, rows, mask, None, lengths) for attention in attentions)
    assert relative(first, second) > 1e-3


def test_the_map_favor_of_fast_transformers_is_favor_hyperbolic():
    """With the directions that Linnet draws it has the same weights."""
    attention = FavorAttention(favor_features=16, favor_seed=3, favor_feature_map="favor-hyperbolic")
    directions = linnet._core.random_draws("favor-hyperbolic", 8, 16, seed=3)["directions"]
    phi = Favor(8, n_dims=16)
    phi.omega = torch.from_numpy(directions).reshape(-1, 8).T
    q, k, v = (torch.randn(2, LENGTH, 2, 8) for _ in range(3))
    out = attention(q, k, v, FullMask(LENGTH), None, LengthMask.whole(2, LENGTH))
    weights = torch.einsum("bihe,bjhe->bhij", phi(q), phi(k))
    assert relative(out, torch.einsum("bhij,bjhm->bihm", weights / weights.sum(-1, keepdim=True), v)) < 1e-5
    with pytest.raises(ValueError, match="favor-hyperbolic"):
        encoder("favor", favor_feature_map="elu")


def test_an_older_state_of_full_attention_stays_what_it_was():
    attention = RecurrentFullAttention()
    tokens = [torch.randn(1, 2, 4) for _ in range(4)]
    _, state = attention(*[tokens[0]] * 3)
    one, _ = attention(*[tokens[1]] * 3, state)
    attention(*[tokens[2]] * 3, state)
    again, _ = attention(*[tokens[1]] * 3, state)
    assert torch.equal(one, again)


def test_states_are_those_of_fast_transformers():
    attention = RecurrentLinearAttention(4)

    def phi(x):
        return torch.nn.functional.elu(x) + 1

    def product(k, v):
        return torch.einsum("nhd,nhm->nhdm", phi(k), v)

    q, k, v = torch.randn(3, 2, 4), torch.randn(3, 2, 4), torch.randn(3, 2, 5)
    _, (s, z) = attention(q, k, v)
    assert relative(s, product(k, v)) < 1e-6 and relative(z, phi(k)) < 1e-6
    # A list of other tensors is a state too.
    q, k, v = torch.randn(3, 2, 4), torch.randn(3, 2, 4), torch.randn(3, 2, 5)
    out, (s2, z2) = attention(q, k, v, [s.clone(), z.clone()])
    assert relative(s2, s + product(k, v)) < 1e-6 and relative(z2, z + phi(k)) < 1e-6
    denominator = torch.einsum("nhd,nhd->nh", phi(q), z2) + attention.eps
    assert relative(out, torch.einsum("nhd,nhdm->nhm", phi(q), s2) / denominator[..., None]) < 1e-5


def decoded(recurrent, x, memory, lengths):
    """The rows of x [N, L, E] by a recurrent decoder, one after another."""
    state, outs = None, []
    with torch.no_grad():
        for i in range(x.shape[1]):
            out, state = recurrent(x[:, i], memory, memory_length_mask=lengths, state=state)
            outs.append(out)
    return torch.stack(outs, 1)


@pytest.mark.parametrize(("own", "cross"), [("causal-linear", "linear"), ("full", "full")])
def test_the_recurrent_decoder_computes_the_same(own, cross):
    given = {**SIZES, "self_attention_type": own, "cross_attention_type": cross}
    module = TransformerDecoderBuilder.from_kwargs(**given).get()
    recurrent = RecurrentDecoderBuilder.from_kwargs(**given).get()
    recurrent.load_state_dict(module.state_dict())
    x, memory = torch.randn(2, 9, 16), torch.randn(2, 7, 16)
    lengths = LengthMask(torch.tensor([7, 4]), max_len=7)
    expected = module(x, memory, x_mask=TriangularCausalMask(9), memory_length_mask=lengths)
    assert relative(decoded(recurrent, x, memory, lengths), expected) < 1e-5


@pytest.mark.parametrize(
    "factory",
    [
        elu_feature_map,
        RandomFourierFeatures.factory(n_dims=16, orthogonal=True),
        SmoothedRandomFourierFeatures.factory(n_dims=17),
        Favor.factory(n_dims=16, stabilize=True),
        GeneralizedRandomFeatures.factory(n_dims=16),
        ActivationFunctionFeatureMap.factory(torch.sigmoid),
    ],
)
def test_feature_maps(factory):
    """A map's features enter the sums that the formula has."""
    attention = LinearAttention(8, feature_map=factory)
    q, k, v = (torch.randn(2, LENGTH, 2, 8) for _ in range(3))
    out = attention(q, k, v, FullMask(LENGTH), None, LengthMask.whole(2, LENGTH))
    phi = attention.feature_map
    weights = torch.einsum("bihe,bjhe->bhij", phi(q).double(), phi(k).double())
    expected = torch.einsum("bhij,bjhm->bihm", weights / (weights.sum(-1, keepdim=True) + 1e-6), v.double())
    assert relative(out, expected) < 1e-4


def test_the_mean_of_favor_is_the_exponential():
    phi = Favor(8, n_dims=20000, softmax_temp=1.0)
    phi.new_feature_map("cpu")
    x, y = 0.5 * torch.randn(8), 0.5 * torch.randn(8)
    assert abs((phi(x) @ phi(y)) / torch.exp(x @ y) - 1) < 0.1


def test_causal_linear_attention_takes_other_numbers_of_keys():
    attention = CausalLinearAttention(8)
    q, k, v = (torch.randn(2, LENGTH, 2, 8) for _ in range(3))
    mask = TriangularCausalMask(LENGTH)
    whole = attention(q, k, v, mask, None, LengthMask.whole(2, LENGTH))
    assert relative(attention(q[:, :9], k, v, TriangularCausalMask(9), None, LengthMask.whole(2, LENGTH)), whole[:, :9]) < 1e-6
    longer = attention(q, k[:, :9], v[:, :9], mask, None, LengthMask.whole(2, 9))
    assert relative(longer[:, :9], whole[:, :9]) < 1e-6
    with pytest.raises(RuntimeError, match="lower triangular"):
        attention(q, k, v, FullMask(LENGTH), None, LengthMask.whole(2, LENGTH))


def test_masks_have_the_properties():
    full = FullMask(3, 4)
    assert full.shape == (3, 4) and full.all_ones and not full.lower_triangular and full.bool_matrix.dtype == torch.bool
    causal = TriangularCausalMask(3)
    assert causal.lower_triangular and not causal.all_ones and torch.equal(causal.bool_matrix, torch.ones(3, 3).tril().bool())
    assert FullMask(torch.ones(3, 3).tril().bool()).lower_triangular
    length = LengthMask(torch.tensor([1, 3]))
    assert torch.equal(length.float_matrix, torch.tensor([[1.0, 0, 0], [1, 1, 1]]))
    assert torch.equal(length.additive_matrix == 0, length.bool_matrix)
    assert length.additive_matrix_finite[0, 1] == -1e24
    assert torch.equal(FullMask(length.bool_matrix).lengths, length.lengths)
    with pytest.raises(ValueError, match="gaps"):
        FullMask(torch.tensor([[True, False, True]])).lengths
    with pytest.raises(ValueError, match="bool"):
        FullMask(torch.ones(2, 2))
    assert isinstance(full, BaseMask)


def test_builders():
    args = argparse.Namespace(n_layers=1, attention_type="linear", unrelated=3)
    builder = TransformerEncoderBuilder.from_namespace(args)
    assert builder.n_layers == 1 and builder.attention_type == "linear" and builder.n_heads == 4
    assert builder.model_dimensions == 256
    with pytest.raises(ValueError, match="unrelated"):
        TransformerEncoderBuilder.from_namespace(args, strict=True)
    with pytest.raises(ValueError, match="activation"):
        builder.activation = "swish"
    builder.event_dispatcher = EventDispatcher()
    builder.attention.softmax_temp = 0.5
    assert isinstance(builder.get(), TransformerEncoder)
    with pytest.raises(ValueError, match="local_context"):
        TransformerEncoderBuilder.from_kwargs(attention_type="local").get()
    for kind in (AttentionBuilder, RecurrentAttentionBuilder, RecurrentCrossAttentionBuilder):
        assert "full" in kind().available_attentions
    decoder = TransformerDecoderBuilder.from_kwargs(**SIZES, cross_n_heads=4, cross_value_dimensions=3, model_dimensions=16)
    assert isinstance(decoder.get(), TransformerDecoder)
    assert decoder.get().layers[0].cross_attention.key_projection.in_features == 12


@pytest.mark.parametrize(
    "name", ["clustered", "improved-clustered", "improved-causal", "conditional-full", "exact-topk", "aft-full", "aft-simple"]
)
def test_absent_attentions_are_refused_with_a_sentence(name):
    with pytest.raises(ValueError, match=f"expected an attention that Linnet has .*got '{name}'"):
        TransformerEncoderBuilder.from_kwargs(attention_type=name)
    with pytest.raises(ValueError, match="got 'ful'"):
        TransformerEncoderBuilder.from_kwargs(attention_type="ful")


def test_attentions_of_ones_own_can_be_registered():
    class Mean(torch.nn.Module):
        def __init__(self, factor):
            super().__init__()
            self.factor = factor

        def forward(self, queries, keys, values, attn_mask, query_lengths, key_lengths):
            assert isinstance(attn_mask, BaseMask) and isinstance(key_lengths, BaseMask)
            return self.factor * values.mean(1, keepdim=True).expand_as(values)

    AttentionRegistry.register("mean", Mean, [("factor", Optional(Float, 1.0))])
    with pytest.raises(ValueError, match="new name"):
        AttentionRegistry.register("mean", Mean, [])
    assert encoder("mean", factor=2)(torch.randn(1, 3, 16)).shape == (1, 3, 16)
    assert Choice([1, 2]) == Choice([1, 2]) and Optional(Int, 3).get(None) == 3 and Optional(Int) != Optional(Bool)
    assert not Callable.check(3) and Spec(int).get("4") == 4
    assert "linear" in RecurrentAttentionRegistry and "linear" in RecurrentCrossAttentionRegistry.keys


def test_attention_dropout_is_accepted_and_named():
    with pytest.warns(UserWarning, match="not applied"):
        FullAttention(attention_dropout=0.1)
    layer = TransformerEncoderLayer(AttentionLayer(LocalAttention(5), 16, 2, event_dispatcher="x"), 16, event_dispatcher="x")
    assert layer(torch.randn(1, 7, 16)).shape == (1, 7, 16)
    assert ReformerAttention().reformer_seed == 0 and issubclass(QKVEvent, AttentionEvent.__mro__[1])
    assert RecurrentAttentionLayer(RecurrentFullAttention(), 16, 2)(*[torch.randn(2, 16)] * 3)[0].shape == (2, 16)
    assert RecurrentCrossAttentionLayer(RecurrentCrossFullAttention(), 16, 2) and RecurrentCrossLinearAttention(4)


def test_causal_product():
    q, k, v = torch.randn(2, 3, 9, 4), torch.randn(2, 3, 9, 4), torch.randn(2, 3, 9, 5)
    assert relative(causal_dot_product(q, k, v), (q.double() @ k.double().mT).tril() @ v.double()) < 1e-6


@pytest.mark.parametrize("context", [1, 4, 5])
def test_local_products_make_local_attention(context):
    q, k, v = (torch.randn(2, 3, 12, 4) for _ in range(3))
    lengths = torch.tensor([12, 7])
    products = local_dot_product(q, k, torch.zeros(12, 12), lengths, context)
    assert products.shape == (2, 3, 12, context)
    i, column = 6, context // 2
    assert relative(products[:, :, i, column], (q[:, :, i] * k[:, :, i]).sum(-1)) < 1e-6
    out = local_weighted_average(torch.softmax(0.5 * products, -1), v)
    attention = LocalAttention(context)
    expected = attention(*(x.transpose(1, 2) for x in (q, k, v)), FullMask(12), None, LengthMask(lengths, max_len=12))
    for b, length in enumerate(lengths):
        assert relative(out[b, :, :length], expected[b, :length].transpose(0, 1)) < 1e-5


@pytest.mark.parametrize("name", ["causal-linear", "full", "favor"])
def test_states_follow_what_is_put_into_their_elements(name):
    """Beams that change places: the elements of a state are assigned, or lists are made of them."""
    options = {**SIZES, "attention_type": name}
    recurrent = RecurrentEncoderBuilder.from_kwargs(**options).get().eval()
    width = 16
    x, order = torch.randn(2, 6, width), torch.tensor([1, 0])
    with torch.no_grad():
        expected = None
        for i in range(6):
            row, expected = recurrent(x[order, i], expected)
        for assign in (True, False):
            state = None
            for i in range(5):
                _, state = recurrent(x[:, i], state)
            if assign:
                for layer in state:
                    for j, part in enumerate(layer):
                        layer[j] = part[order]
            else:
                state = [[part[order] for part in layer] for layer in state]
            found, state = recurrent(x[order, 5], state)
            assert relative(found, row) < 1e-6
            for layer, exact in zip(state, expected):
                for part, other in zip(layer[:2], exact):
                    assert relative(part, other) < 1e-6


@pytest.mark.parametrize("name", ["causal-linear", "full", "local", "strided", "favor"])
@pytest.mark.parametrize("mask", [TriangularCausalMask(3), FullMask(3), FullMask(12)])
def test_masks_of_another_length_are_refused(name, mask):
    encoder = TransformerEncoderBuilder.from_kwargs(**{**SIZES, "attention_type": name, "local_context": 4}).get()
    width = 16
    with pytest.raises((ValueError, RuntimeError), match="mask"):
        encoder(torch.randn(2, 10, width), attn_mask=mask)


@pytest.mark.parametrize("name", ["linear", "full"])
def test_a_memory_longer_than_its_mask_is_padding_in_the_recurrent_form_too(name):
    given = {**SIZES, "self_attention_type": "causal-linear", "cross_attention_type": name}
    module = TransformerDecoderBuilder.from_kwargs(**given).get()
    recurrent = RecurrentDecoderBuilder.from_kwargs(**given).get()
    recurrent.load_state_dict(module.state_dict())
    x, memory = torch.randn(2, 4, 16), torch.randn(2, 12, 16)
    lengths = LengthMask(torch.tensor([7, 7]))
    expected = module(x, memory, x_mask=TriangularCausalMask(4), memory_length_mask=lengths)
    assert relative(decoded(recurrent, x, memory, lengths), expected) < 1e-5


def test_a_lower_triangle_of_other_lengths_is_a_mask():
    attention = FullAttention()
    queries, keys = torch.randn(2, 5, 2, 8), torch.randn(2, 8, 2, 8)
    mask = FullMask(torch.tril(torch.ones(5, 8, dtype=torch.bool)))
    out = attention(queries, keys, keys, mask, LengthMask(torch.full((2,), 5)), LengthMask(torch.full((2,), 8)))
    scores = torch.einsum("nlhe,nshe->nhls", queries, keys) / 8**0.5
    scores = scores.masked_fill(~mask.bool_matrix, -torch.inf).softmax(-1)
    assert relative(out, torch.einsum("nhls,nshd->nlhd", scores, keys)) < 1e-5


@pytest.mark.parametrize("name", ["causal-linear", "full"])
def test_masks_made_in_a_compiled_function_do_not_break_the_graph(name):
    module = encoder(name)

    def run(x, lengths):
        mask = TriangularCausalMask(LENGTH)
        return module(x, attn_mask=mask, length_mask=LengthMask(lengths, max_len=LENGTH))

    x, lengths = torch.randn(2, LENGTH, 16), torch.tensor([LENGTH, 13])
    compiled = torch.compile(run, fullgraph=True, backend="aot_eager")
    for given in (lengths, torch.full((2,), LENGTH)):
        assert relative(compiled(x, given), run(x, given)) < 1e-6


def test_length_masks_shorter_than_the_keys():
    encoder = TransformerEncoderBuilder.from_kwargs(**{**SIZES, "attention_type": "full"}).get()
    x = torch.randn(2, 10, 16)
    short, whole = LengthMask(torch.tensor([5, 5])), LengthMask(torch.tensor([5, 5]), max_len=10)
    assert torch.equal(encoder(x, length_mask=short), encoder(x, length_mask=whole))
    with pytest.raises(ValueError, match="at most 10 keys"):
        encoder(x, length_mask=LengthMask(torch.tensor([12, 5])))


def small_encoder(name):
    options = {"local_context": 5} if name == "local" else {}
    builder = TransformerEncoderBuilder.from_kwargs(
        n_layers=1, n_heads=2, query_dimensions=8, value_dimensions=8, feed_forward_dimensions=16, attention_type=name, **options
    )
    return builder.get().eval()


@pytest.mark.parametrize(
    "lengths",
    [
        torch.tensor([14, 5]),
        torch.tensor([12.0, 5.0]),
        torch.tensor([12.0, 5.0], dtype=torch.float64),
        torch.tensor([90, 5], dtype=torch.uint8),
        torch.tensor([12, 5], dtype=torch.int16),
    ],
    ids=str,
)
def test_lengths_of_other_types_and_beyond_the_end(lengths):
    mask, expected = LengthMask(lengths, max_len=12), LengthMask(torch.tensor([12, 5]), max_len=12)
    assert mask.lengths.dtype == torch.int64 and torch.equal(mask.lengths, expected.lengths)
    assert torch.equal(mask.bool_matrix, expected.bool_matrix)
    encoder, x = small_encoder("linear"), torch.randn(2, 12, 16)
    assert torch.equal(encoder(x, length_mask=mask), encoder(x, length_mask=expected))
    assert LengthMask(torch.tensor([12.0, 90.0]), max_len=12).all_ones


@pytest.mark.parametrize("lengths", [torch.tensor([2.5]), torch.tensor([math.nan]), torch.tensor([True])], ids=str)
def test_lengths_that_are_not_whole(lengths):
    with pytest.raises(ValueError, match=r"\[mask\] expected whole lengths"):
        LengthMask(lengths, max_len=12)


@pytest.mark.parametrize("name", ["full", "linear", "causal-linear", "local"])
def test_one_length_for_all_entries(name):
    encoder, x = small_encoder(name), torch.randn(3, 12, 16)
    mask = TriangularCausalMask(12) if name == "causal-linear" else None
    one, each = (LengthMask(torch.tensor([7] * count), max_len=12) for count in (1, 3))
    expected = encoder(x, attn_mask=mask, length_mask=each)
    assert torch.equal(encoder(x, attn_mask=mask, length_mask=one), expected)
    compiled = torch.compile(lambda x: encoder(x, attn_mask=mask, length_mask=one), fullgraph=True, backend="aot_eager")
    assert relative(compiled(x), expected) < 1e-6


@pytest.mark.parametrize("kind", [RecurrentCrossFullAttention, lambda: RecurrentCrossLinearAttention(8)], ids=["full", "linear"])
def test_one_length_for_all_memories(kind):
    attention, query, memory = kind(), torch.randn(3, 2, 8), torch.randn(3, 12, 2, 8)
    one, each = (attention(query, memory, memory, LengthMask(torch.tensor([7] * count), max_len=12))[0] for count in (1, 3))
    assert torch.equal(one, each)


def test_length_masks_with_gaps_are_refused():
    gaps = FullMask(torch.tensor([[True, False, True]]))
    with pytest.raises(ValueError, match="a mask with gaps"):
        small_encoder("full")(torch.randn(1, 3, 16), length_mask=gaps)
