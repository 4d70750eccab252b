"""A small GPT over characters, in plain PyTorch."""

from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F


@dataclass
class Shape:
    vocabulary: int
    context: int = 128
    width: int = 96
    layers: int = 3
    heads: int = 4


class Attention(nn.Module):
    def __init__(self, shape: Shape):
        super().__init__()
        self.heads = shape.heads
        self.to_qkv = nn.Linear(shape.width, 3 * shape.width)
        self.out = nn.Linear(shape.width, shape.width)
        self.register_buffer("future", torch.ones(shape.context, shape.context, dtype=torch.bool).triu(1), persistent=False)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = (
            part.view(batch, length, self.heads, width // self.heads).transpose(1, 2)
            for part in self.to_qkv(x).split(width, dim=2)
        )
        scores = q @ k.transpose(2, 3) / (width // self.heads) ** 0.5
        scores = scores.masked_fill(self.future[:length, :length], float("-inf"))
        return self.out((scores.softmax(dim=3) @ v).transpose(1, 2).reshape(batch, length, width))


class Block(nn.Module):
    def __init__(self, shape: Shape):
        super().__init__()
        self.before_attention = nn.LayerNorm(shape.width)
        self.attention = Attention(shape)
        self.before_mlp = nn.LayerNorm(shape.width)
        self.mlp = nn.Sequential(
            nn.Linear(shape.width, 4 * shape.width), nn.GELU(), nn.Linear(4 * shape.width, shape.width)
        )

    def forward(self, x):
        x = x + self.attention(self.before_attention(x))
        return x + self.mlp(self.before_mlp(x))


class GPT(nn.Module):
    def __init__(self, shape: Shape):
        super().__init__()
        self.token = nn.Embedding(shape.vocabulary, shape.width)
        self.position = nn.Embedding(shape.context, shape.width)
        self.blocks = nn.Sequential(*(Block(shape) for _ in range(shape.layers)))
        self.last_norm = nn.LayerNorm(shape.width)
        self.head = nn.Linear(shape.width, shape.vocabulary, bias=False)
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, tokens, targets):
        x = self.token(tokens) + self.position.weight[: tokens.shape[1]]
        logits = self.head(self.last_norm(self.blocks(x)))
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())
