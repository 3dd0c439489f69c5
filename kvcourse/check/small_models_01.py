"""Small models for lesson 01, on random weights: one head that writes, and four that differ in who sees whom."""

import torch


class OneHead:
    """A language model of one attention head, which leaves its keys and values to whoever calls it.

    Tokens are the numbers 0 to 25. `positions` counts the token positions that it has read so far.
    """

    def __init__(self, tokens=26, hidden=16, head_dim=8, seed=4):
        dice = torch.Generator().manual_seed(seed)
        self._table = torch.randn(tokens, hidden, generator=dice)
        self._weights = [torch.randn(hidden, head_dim, generator=dice) / hidden**0.5 for _ in "qkv"]
        self._out = torch.randn(head_dim, tokens, generator=dice)
        self.positions = 0

    def read(self, tokens, start):
        """Queries, keys and values of a list of tokens, three tensors of (number of tokens, head_dim).

        `start`: the position of the first of them in the text, counted from 0.
        """
        tokens = torch.as_tensor(tokens).reshape(-1)
        x = self._table[tokens] + waves(start, len(tokens), self._table.shape[1])
        self.positions += len(tokens)
        return tuple(x @ weights for weights in self._weights)

    def next_token(self, query, keys, values):
        """The token that follows, as a number.

        `query`: that of the newest token, (head_dim,). `keys`, `values`: lists with one entry for each token so far.
        """
        keys, values = (torch.cat([torch.atleast_2d(entry) for entry in rows]) for rows in (keys, values))
        if len(keys) != len(values):
            raise ValueError(f"each token has a key and a value; got {len(keys)} keys and {len(values)} values")
        if query.numel() != keys.shape[1]:
            raise ValueError(f"give one query, that of the newest token; got a tensor of shape {tuple(query.shape)}")
        weights = (keys @ query.reshape(-1) / keys.shape[1] ** 0.5).softmax(0)
        return int((weights @ values @ self._out).argmax())


def waves(start, tokens, hidden):
    """A vector for each position from `start` on, (tokens, hidden): waves of `hidden` different speeds."""
    return torch.sin(torch.arange(start, start + tokens)[:, None] * (0.3 + torch.arange(hidden) * 0.17))


PREFIX, WINDOW = 4, 3
RULES = {  # who may look at whom: (query, key) -> True; queries and keys are positions
    "causal": lambda query, key: key <= query,
    "encoder": lambda query, key: key >= 0,
    "prefix-LM": lambda query, key: (key <= query) | (key < PREFIX),
    "window": lambda query, key: (key <= query) & (query - key < WINDOW),
}


class Masked:
    """A model of three layers with one head each. The four of them have the same weights and different masks."""

    def __init__(self, rule, layers=3, tokens=26, hidden=8, seed=1):
        dice = torch.Generator().manual_seed(seed)
        self._rule = rule
        self._table = torch.randn(tokens, hidden, generator=dice)
        self._layers = torch.randn(layers, 3, hidden, hidden, generator=dice) / hidden**0.5

    def mask(self, tokens):
        """True where a token may look: (tokens, tokens), a row for each token that looks."""
        positions = torch.arange(tokens)
        return self._rule(positions[:, None], positions).expand(tokens, tokens)

    def keys(self, tokens):
        """The keys of a list of tokens in all layers: (layers, number of tokens, hidden)."""
        x, keys = self._table[torch.as_tensor(tokens)], []
        for weights in self._layers:
            q, k, v = x @ weights
            scores = (q @ k.T / k.shape[1] ** 0.5).masked_fill(~self.mask(len(tokens)), float("-inf"))
            x = x + scores.softmax(-1) @ v
            keys.append(k)
        return torch.stack(keys)


FOUR = {name: Masked(rule) for name, rule in RULES.items()}
