"""Puts linear attention into a PyTorch model of one's own, trains it to repeat what it has read, and runs it token by token.

    python examples/python/own_model_torch.py [UPDATES]

A sequence is a random word of LETTERS letters, a separator and the word again: to write the second half the model must look back.
It takes about a minute on two cores.
"""

import sys
import time

import torch
from torch import nn

import linnet.torch as lt

LETTERS, WORD, WIDTH, HEADS = 8, 12, 64, 4
SEPARATOR = LETTERS


class Block(nn.Module):
    """Causal linear attention and a feed-forward network."""

    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.output = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.feed_forward = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def heads(self, x):
        """q, k and v, [..., heads, dim]: views of one projection, which the operator reads where they are."""
        return (part.unflatten(-1, (HEADS, -1)) for part in self.qkv(self.norm1(x)).chunk(3, -1))

    def forward(self, x):
        out = lt.linear_attention(*self.heads(x), mask="causal")
        x = x + self.output(out.flatten(-2))
        return x + self.feed_forward(self.norm2(x))

    def step(self, x, state):
        """The same for one token per stream."""
        out, state = lt.linear_attention_step(*self.heads(x), state)
        x = x + self.output(out.flatten(-2))
        return x + self.feed_forward(self.norm2(x)), state


class Repeater(nn.Module):
    def __init__(self, layers=2):
        super().__init__()
        self.embedding = nn.Embedding(LETTERS + 1, WIDTH)
        self.positions = nn.Parameter(0.02 * torch.randn(2 * WORD + 1, WIDTH))
        self.blocks = nn.ModuleList(Block() for _ in range(layers))
        self.head = nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, LETTERS))

    def forward(self, tokens):
        x = self.embedding(tokens) + self.positions[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.head(x)

    @torch.no_grad()
    def repeat(self, words):
        """Reads words [n, WORD] and a separator token by token, then writes as many letters."""
        states = [lt.linear_state(len(words), HEADS, WIDTH // HEADS) for _ in self.blocks]
        token, written = words[:, 0], []
        for i in range(2 * WORD):
            x = self.embedding(token) + self.positions[i]
            for layer, block in enumerate(self.blocks):
                x, states[layer] = block.step(x, states[layer])
            if i + 1 < WORD:
                token = words[:, i + 1]
            elif i + 1 == WORD:
                token = torch.full_like(token, SEPARATOR)
            else:
                token = self.head(x).argmax(-1)
                written.append(token)
        return torch.stack(written, 1)


def main():
    updates = int(sys.argv[1]) if len(sys.argv) > 1 else 600
    torch.manual_seed(0)
    model = Repeater()
    optimiser = torch.optim.Adam(model.parameters(), lr=3e-3)
    start = time.perf_counter()
    for update in range(updates):
        words = torch.randint(LETTERS, (32, WORD))
        tokens = torch.cat([words, torch.full((32, 1), SEPARATOR), words], 1)
        logits = model(tokens[:, :-1])[:, WORD:]
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), words.flatten())
        optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        if update % 100 == 0 or update + 1 == updates:
            print(f"update {update + 1:4}  loss {loss.item():.3f}  {time.perf_counter() - start:.1f} s")
    words = torch.randint(LETTERS, (100, WORD))
    right = (model.repeat(words) == words).float().mean().item()
    print(f"{100 * right:.0f} % of the letters repeated token by token")


if __name__ == "__main__":
    main()
