"""Causal attention by hand: recomputed at every step, then cached; and what each way costs.

The same function attends in both. What differs is who keeps the keys and values: nobody, or a memory of two tensors.
"""

from dataclasses import dataclass

import torch


def attend(q, k, v, offset=0):
    """Each query looks at the keys up to its own position, and mixes their values.

    q: (batch, q_heads, q_len, head_dim), the newest q_len positions, of which the first is `offset`.
    k, v: (batch, kv_heads, kv_len, head_dim), positions 0 to kv_len - 1. With fewer kv_heads than q_heads, each
    group of q_heads / kv_heads neighbouring queries shares one key head (grouped queries, Ainslie et al. 2023).
    Returns (batch, q_heads, q_len, head_dim).
    """
    group = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1)
    scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5  # (batch, q_heads, q_len, kv_len)
    query, key = (torch.arange(x.shape[2], device=q.device) for x in (q, k))
    query = query + offset
    scores = scores.masked_fill(key > query[:, None], float("-inf"))
    return scores.softmax(dim=-1) @ v


@dataclass
class Cost:
    """What a run of attention has cost so far, three things counted apart."""

    positions: int = 0  # token positions sent through the layer
    dot_products: int = 0  # query times key, of one head each
    bytes_held: int = 0  # keys and values kept between two steps

    def __str__(self):
        return f"{self.positions:,} positions, {self.dot_products:,} dot products, {self.bytes_held:,} bytes held"


class AttentionByHand:
    """One attention layer with fixed random weights, small enough to follow with a pencil.

    Input and output: (batch, tokens, hidden). `cost` counts what has been computed since it was last reset.
    """

    def __init__(self, hidden=8, q_heads=1, kv_heads=1, head_dim=4, seed=0):
        if q_heads % kv_heads:
            raise ValueError(f"q_heads must be a multiple of kv_heads; got {q_heads} and {kv_heads}")
        dice = torch.Generator().manual_seed(seed)
        self.heads, self.head_dim, self.cost = {"q": q_heads, "k": kv_heads, "v": kv_heads}, head_dim, Cost()
        self.weights = {
            role: torch.randn(hidden, heads * head_dim, generator=dice) / hidden**0.5
            for role, heads in self.heads.items()
        }

    def project(self, x, role):
        """Queries "q", keys "k" or values "v" of x: (batch, tokens, hidden) -> (batch, heads, tokens, head_dim)."""
        batch, tokens, _ = x.shape
        return (x @ self.weights[role]).view(batch, tokens, self.heads[role], self.head_dim).transpose(1, 2)

    def recomputed(self, x):
        """Output for the last token of x, from nothing: every token is projected again, at every call."""
        q, k, v = (self.project(x, role) for role in "qkv")
        self._count(q, k, bytes_held=0)
        return _join(attend(q, k, v))[:, -1:]

    def cached(self, x, memory=None):
        """Output for the last of the *new* tokens x, and the memory (k, v) to bring along next time."""
        q, k, v = (self.project(x, role) for role in "qkv")
        offset = 0
        if memory is not None:
            offset = memory[0].shape[2]
            k, v = torch.cat([memory[0], k], dim=2), torch.cat([memory[1], v], dim=2)
        self._count(q, k, bytes_held=k.nbytes + v.nbytes)
        return _join(attend(q, k, v, offset))[:, -1:], (k, v)

    def _count(self, q, k, bytes_held):
        batch, heads, q_len, _ = q.shape
        self.cost.positions += q_len
        self.cost.dot_products += batch * heads * q_len * k.shape[2]  # the masked half is computed too
        self.cost.bytes_held = bytes_held


def _join(heads):
    """(batch, q_heads, tokens, head_dim) -> (batch, tokens, q_heads x head_dim)."""
    return heads.transpose(1, 2).flatten(2)


def positions(prompt, new, cached):
    """Token positions that go through the model when it reads `prompt` tokens and writes `new` ones.

    Without a cache every step sends the whole text. With one, the prompt goes once and then each new token once,
    but for the last: nobody asks what comes after it.
    """
    return prompt + new - 1 if cached else sum(prompt + step for step in range(new))
