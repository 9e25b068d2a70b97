"""The paper's MNIST model and chunked linear attention in PyTorch's operators alone, as peers for the benchmarks."""
import torch
import torch.nn.functional as F
from torch import nn

LAYERS, WIDTH, HEADS, LENGTH, LEVELS, BATCH = 8, 256, 8, 784, 256, 10
HEAD = WIDTH // HEADS


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


def linear_of_pictures(q, k, v):
    return chunked_linear(q, k, v, 112)  # 784 has no larger divisor near 128


def softmax(q, k, v):
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


class LinearState(nn.Module):
    """φ(k) vᵀ and φ(k), summed over the tokens so far; a step takes queries, keys and values [streams, heads, dim]."""

    def __init__(self, streams):
        super().__init__()
        self.register_buffer("sum", torch.zeros(streams, HEADS, HEAD, HEAD))
        self.register_buffer("keys", torch.zeros(streams, HEADS, HEAD))

    def forward(self, q, k, v, position):
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
        self.register_buffer("places", torch.arange(LENGTH))

    def forward(self, q, k, v, position):
        self.keys[:, :, position] = k
        self.values[:, :, position] = v
        seen = (self.places <= position).unsqueeze(0)
        return F.scaled_dot_product_attention(q.unsqueeze(-2), self.keys, self.values, attn_mask=seen).squeeze(-2)


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

    def step(self, x, memory, position):
        """One token of every stream, [streams, width]."""
        q, k, v = (part.unflatten(-1, (HEADS, -1)) for part in self.qkv(x).chunk(3, -1))
        return self.rest(x, memory(q, k, v, position).flatten(-2))


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

    def forward(self, tokens, position):
        x = self.model.embedding(tokens) + self.model.positions[position]
        for block, memory in zip(self.model.blocks, self.memories):
            x = block.step(x, memory, position)
        return torch.multinomial(self.model.head(x).float().softmax(-1), 1).squeeze(-1)


def training_pass(attend, *inputs):
    """A forward and a backward pass; the gradients of the inputs are thrown away."""
    leaves = [x.detach().requires_grad_() for x in inputs]
    upper = torch.randn_like(inputs[2])
    return lambda: torch.autograd.grad(attend(*leaves), leaves, upper)


def update_of(attend, tokens, autocast=False):
    """One update of the model under torch.compile, with Adam and clipping."""
    torch.manual_seed(0)
    model = torch.compile(Pixels(attend))
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-4)

    def update():
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            logits = model(tokens[:, :-1])
            loss = F.cross_entropy(logits.flatten(0, 1).float(), tokens[:, 1:].flatten())
        optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()

    return update
