#!/usr/bin/env python3
"""The character model that nanoGPT's README trains on a CPU, in PyTorch: 4 layers, 4 heads, width 128, blocks of 64
characters, batches of 12, 2,000 updates, no dropout.

    experiments/shakespeare_pytorch.py TEXT [UPDATES [THREADS]]

Prints threads, updates, tokens seen, minutes of training, and the loss over the last tenth of the text as JSON. Characters are the
bytes of the text. AdamW: rate 1e-3 falling as a cosine to 1e-4, 100 updates of warmup, beta2 0.99, weight decay 0.1 for
matrices, gradients clipped to a norm of 1.
"""
import json
import math
import pathlib
import sys
import time

try:
    import torch
    import torch.nn.functional as F
    from torch import nn
except ModuleNotFoundError:
    sys.exit("shakespeare_pytorch.py: PyTorch is needed (pip install torch)")

LAYERS, HEADS, WIDTH, BLOCK, BATCH = 4, 4, 128, 64, 12
RATE, FINAL_RATE, WARMUP = 1e-3, 1e-4, 100


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention_norm = nn.LayerNorm(WIDTH, bias=False)
        self.queries_keys_values = nn.Linear(WIDTH, 3 * WIDTH, bias=False)
        self.output = nn.Linear(WIDTH, WIDTH, bias=False)
        self.feed_forward_norm = nn.LayerNorm(WIDTH, bias=False)
        self.up = nn.Linear(WIDTH, 4 * WIDTH, bias=False)
        self.down = nn.Linear(4 * WIDTH, WIDTH, bias=False)

    def forward(self, x):
        batch, length, _ = x.shape
        heads = self.queries_keys_values(self.attention_norm(x)).view(batch, length, 3, HEADS, WIDTH // HEADS)
        q, k, v = heads.permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.output(attended.transpose(1, 2).reshape(batch, length, WIDTH))
        return x + self.down(F.gelu(self.up(self.feed_forward_norm(x))))


class Model(nn.Module):
    def __init__(self, vocabulary):
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, WIDTH)
        self.positions = nn.Embedding(BLOCK, WIDTH)
        self.layers = nn.Sequential(*[Layer() for _ in range(LAYERS)])
        self.norm = nn.LayerNorm(WIDTH, bias=False)
        for name, weight in self.named_parameters():
            if weight.dim() == 2:
                into_the_stream = name.endswith(("output.weight", "down.weight"))
                nn.init.normal_(weight, std=0.02 / (math.sqrt(2 * LAYERS) if into_the_stream else 1))

    def forward(self, tokens, targets):
        x = self.tokens(tokens) + self.positions.weight[: tokens.shape[1]]
        logits = self.norm(self.layers(x)) @ self.tokens.weight.T
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def rate_of(update, updates):
    if update < WARMUP:
        return RATE * (update + 1) / (WARMUP + 1)
    passed = (update - WARMUP) / max(1, updates - WARMUP)
    return FINAL_RATE + (RATE - FINAL_RATE) * (1 + math.cos(math.pi * passed)) / 2


@torch.no_grad()
def loss_over(model, tokens):
    """Nats per token over all whole blocks."""
    count = (len(tokens) - 1) // BLOCK
    inputs = tokens[: count * BLOCK].view(count, BLOCK)
    targets = tokens[1 : count * BLOCK + 1].view(count, BLOCK)
    total = sum(model(i, t).item() * len(i) for i, t in zip(inputs.split(64), targets.split(64)))
    return total / count


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    torch.manual_seed(1337)
    if len(sys.argv) > 3:
        torch.set_num_threads(int(sys.argv[3]))
    text = pathlib.Path(sys.argv[1]).read_bytes()
    updates = int(sys.argv[2]) if len(sys.argv) > 2 else 2000
    symbols = sorted(set(text))
    tokens = torch.tensor([symbols.index(byte) for byte in text])
    training, validation = tokens[: len(tokens) * 9 // 10], tokens[len(tokens) * 9 // 10 :]
    model = Model(len(symbols))
    matrices = [p for p in model.parameters() if p.dim() == 2]
    vectors = [p for p in model.parameters() if p.dim() < 2]
    optimiser = torch.optim.AdamW([{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}],
                                  lr=RATE, betas=(0.9, 0.99))
    begin = time.time()
    for update in range(updates):
        for group in optimiser.param_groups:
            group["lr"] = rate_of(update, updates)
        starts = torch.randint(len(training) - BLOCK, (BATCH,))
        loss = model(torch.stack([training[s : s + BLOCK] for s in starts]),
                     torch.stack([training[s + 1 : s + 1 + BLOCK] for s in starts]))
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        if update % 100 == 0:
            print(f"update {update}: {loss.item():.3f} nats", file=sys.stderr, flush=True)
    minutes = (time.time() - begin) / 60
    print(json.dumps({"version": torch.__version__, "threads": torch.get_num_threads(), "updates": updates,
                      "tokens": updates * BATCH * BLOCK, "minutes": minutes, "bits": loss_over(model, validation) / math.log(2)}))


if __name__ == "__main__":
    main()
