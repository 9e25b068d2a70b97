"""What the tests of linnet.torch share."""

import torch


def rows(*shape, dtype=None, gradient=True):
    """A tensor of normal numbers that wants a gradient."""
    made = torch.randn(*shape).to(dtype or torch.float32)
    return made.requires_grad_() if gradient else made


def relative(found, expected):
    """Norm-wise relative error."""
    found, expected = found.detach().double(), expected.detach().double()
    return ((found - expected).norm() / expected.norm().clamp(min=1e-30)).item()


def twice(inputs):
    """The inputs as float64, with gradients of their own."""
    return [tensor.detach().double().requires_grad_(tensor.requires_grad) for tensor in inputs]


def compare(function, formula, inputs, tolerance=1e-5):
    """Values and gradients of a function of float32 tensors and of a formula of float64 ones."""
    exact = twice(inputs)
    out, expected = function(*inputs), formula(*exact)
    out, expected = (result if isinstance(result, tuple) else (result,) for result in (out, expected))
    upper = [torch.randn_like(result) for result in out]
    for found, wanted in zip(out, expected):
        assert found.shape == wanted.shape
        assert relative(found, wanted) < tolerance
    wants = [i for i, tensor in enumerate(inputs) if tensor.requires_grad]
    gradients = torch.autograd.grad(out, [inputs[i] for i in wants], upper)
    expected_gradients = torch.autograd.grad(expected, [exact[i] for i in wants], [g.double() for g in upper])
    for found, wanted in zip(gradients, expected_gradients):
        assert relative(found, wanted) < tolerance
