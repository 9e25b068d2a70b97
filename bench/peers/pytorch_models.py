"""The paper's MNIST model and chunked linear attention in PyTorch's operators alone, as peers for the benchmarks."""
import functools
import os
import sys

import torch
import torch.nn.functional as F
from torch import nn

torch._dynamo.config.recompile_limit = 64  # or it stops compiling after eight versions of a function

LAYERS, WIDTH, HEADS, LENGTH, LEVELS, BATCH = 8, 256, 8, 784, 256, 10
HEAD = WIDTH // HEADS


# glibc keeps what PyTorch frees, in large pages: by default large tensors are memory of the system that is new in every call, and
# linear attention takes twice as long.
ALLOCATOR = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(2**34), "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}


def keep_freed_memory():
    """Begins the program anew with these variables."""
    if any(os.environ.get(name) != value for name, value in ALLOCATOR.items()):
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **ALLOCATOR})


def own_environment():
    """The environment without these variables."""
    return {name: value for name, value in os.environ.items() if name not in ALLOCATOR}


def compiled_for(chunk):
    """Linear attention compiled for this length of chunks: with several lengths torch.compile would take any."""
    return torch.compile(functools.partial(chunked_linear, chunk=chunk), dynamic=False)


def chunked_linear(q, k, v, chunk=128):
    """elu(q) + 1 and elu(k) + 1 under a causal mask in chunks, [batch, heads, length, dim]: PyTorch's operators alone."""
    batch, heads, length, dim = q.shape
    q, k = F.elu(q) + 1, F.elu(k) + 1
    v = torch.cat([v, torch.ones_like(v[..., :1])], -1)  # the last column is the denominator
    q, k, v = (x.reshape(batch, heads, length // chunk, chunk, -1) for x in (q, k, v))
    sums = k.transpose(-1, -2) @ v
    before = sums.cumsum(2) - sums
    inside = (q @ k.transpose(-1, -2)).tril() @ v
    out = (inside + q @ before).reshape(batch, heads, length, -1)
    return out[..., :-1] / (out[..., -1:] + 1e-6)


PICTURE_CHUNKS = (56, 112, 196)  # divisors of 784


def softmax(q, k, v):
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


class LinearState(nn.Module):
    """φ(k) vᵀ and φ(k), summed over the tokens so far; a step takes queries, keys and values [streams, heads, dim]."""

    def __init__(self, streams):
        super().__init__()
        self.register_buffer("sum", torch.zeros(streams, HEADS, HEAD, HEAD))
        self.register_buffer("keys", torch.zeros(streams, HEADS, HEAD))

    def forward(self, q, k, v, position, seen):
        q, k = F.elu(q) + 1, F.elu(k) + 1
        self.sum += k.unsqueeze(-1) * v.unsqueeze(-2)
        self.keys += k
        return (q.unsqueeze(-2) @ self.sum).squeeze(-2) / ((q * self.keys).sum(-1, keepdim=True) + 1e-6)


class SoftmaxCache(nn.Module):
    """All keys and values so far."""

    def __init__(self, streams):
        super().__init__()
        self.register_buffer("keys", torch.zeros(streams, HEADS, LENGTH, HEAD))
        self.register_buffer("values", torch.zeros(streams, HEADS, LENGTH, HEAD))

    def forward(self, q, k, v, position, seen):
        self.keys[:, :, position] = k
        self.values[:, :, position] = v
        return F.scaled_dot_product_attention(q.unsqueeze(-2), self.keys[:, :, :seen], self.values[:, :, :seen]).squeeze(-2)


class Block(nn.Module):
    """A layer of the paper's model: attention and a feed-forward network, each followed by its norm."""

    def __init__(self, attend):
        super().__init__()
        self.attend = attend
        self.qkv, self.output = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.first, self.second = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)

    def rest(self, x, attended):
        x = self.norm1(x + self.output(attended))
        return self.norm2(x + self.second(F.gelu(self.first(x))))

    def forward(self, x):
        q, k, v = (part.unflatten(-1, (HEADS, -1)).transpose(1, 2) for part in self.qkv(x).chunk(3, -1))
        return self.rest(x, self.attend(q, k, v).transpose(1, 2).flatten(-2))

    def step(self, x, memory, position, seen):
        """One token of every stream, [streams, width], at a position, a tensor; `seen` counts the tokens up to this one."""
        q, k, v = (part.unflatten(-1, (HEADS, -1)) for part in self.qkv(x).chunk(3, -1))
        return self.rest(x, memory(q, k, v, position, seen).flatten(-2))


class Pixels(nn.Module):
    def __init__(self, attend):
        super().__init__()
        self.embedding = nn.Embedding(LEVELS, WIDTH)
        self.positions = nn.Parameter(0.02 * torch.randn(LENGTH, WIDTH))
        self.blocks = nn.Sequential(*(Block(attend) for _ in range(LAYERS)))
        self.head = nn.Linear(WIDTH, LEVELS)

    def forward(self, tokens):
        return self.head(self.blocks(self.embedding(tokens) + self.positions))


class Drawing(nn.Module):
    """Draws the next pixel of every stream."""

    def __init__(self, model, memory, streams):
        super().__init__()
        self.model = model
        self.memories = nn.ModuleList(memory(streams) for _ in range(LAYERS))

    def forward(self, tokens, position, seen):
        x = self.model.embedding(tokens) + self.model.positions[position]
        for block, memory in zip(self.model.blocks, self.memories):
            x = block.step(x, memory, position, seen)
        return torch.multinomial(self.model.head(x).float().softmax(-1), 1).squeeze(-1)


def training_pass(attend, *inputs):
    """A forward and a backward pass; the gradients of the inputs are thrown away."""
    leaves = [x.detach().requires_grad_() for x in inputs]
    upper = torch.randn_like(inputs[2])
    return lambda: torch.autograd.grad(attend(*leaves), leaves, upper)


def update_of(attend, tokens, autocast=False):
    """One update of the model with its loss under torch.compile, with Adam and clipping."""
    torch.manual_seed(0)
    model = Pixels(attend)
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-4, fused=True)

    @functools.partial(torch.compile, dynamic=False)
    def loss_of(inputs, targets):
        return F.cross_entropy(model(inputs).flatten(0, 1).float(), targets.flatten())

    def update():
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            loss = loss_of(tokens[:, :-1], tokens[:, 1:])
        optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()

    return update
