"""The right answer to task 12a, and the wrong ones that people give."""

import torch

from .task import Mistake


class Residual:
    """The right answer, with the lines that go wrong as methods."""

    def __init__(self, format, residual):
        self.format, self.residual = format, residual
        self.blocks, self.exact = {"keys": [], "values": []}, {}

    def update(self, keys, values):
        return self.append("keys", keys), self.append("values", values)

    def append(self, part, new):
        old = [self.format.dequantize(block, new.dtype) for block in self.blocks[part]]
        exact = torch.cat([self.exact[part], new], dim=2) if part in self.exact else new
        surplus = self.surplus(exact.shape[2])
        if surplus:
            self.store(part, exact[:, :, :surplus])
        self.exact[part] = exact[:, :, surplus:].clone()
        return self.joined(old, exact, new)

    def surplus(self, tokens):
        return max(tokens - self.residual, 0)

    def store(self, part, leaving):
        self.blocks[part].append(self.format.quantize(leaving))

    def joined(self, old, exact, new):
        return torch.cat([*old, exact], dim=2)


def layer(**methods):
    return type("Layer", (Residual,), methods)


def requantizes(self, part, leaving):
    old = [self.format.dequantize(block, leaving.dtype) for block in self.blocks[part]]
    self.blocks[part] = [self.format.quantize(torch.cat([*old, leaving], dim=2))]


def from_the_wrong_end(self, part, new):
    old = [self.format.dequantize(block, new.dtype) for block in self.blocks[part]]
    exact = torch.cat([self.exact[part], new], dim=2) if part in self.exact else new
    if surplus := self.surplus(exact.shape[2]):
        self.blocks[part].append(self.format.quantize(exact[:, :, -surplus:]))
    self.exact[part] = exact[:, :, : exact.shape[2] - surplus].clone()
    return torch.cat([*old, exact], dim=2)


def quantizes_first(self, part, new):
    exact = torch.cat([self.exact[part], new], dim=2) if part in self.exact else new
    surplus = self.surplus(exact.shape[2])
    if surplus:
        self.store(part, exact[:, :, :surplus])
    self.exact[part] = exact[:, :, surplus:].clone()
    old = [self.format.dequantize(block, new.dtype) for block in self.blocks[part]]
    return torch.cat([*old, self.exact[part]], dim=2)


def all_codes(self, part, new):
    self.store(part, new)
    return torch.cat([self.format.dequantize(block, new.dtype) for block in self.blocks[part]], dim=2)


def keys_alone(self, part, new):
    if part == "keys":
        return Residual.append(self, part, new)
    self.exact[part] = torch.cat([self.exact[part], new], dim=2) if part in self.exact else new.clone()
    return self.exact[part]


def last_block_alone(self, part, leaving):
    self.blocks[part] = [self.format.quantize(leaving)]


def exact_kept_too(self, part, new):
    old = [self.format.dequantize(block, new.dtype) for block in self.blocks[part]]
    exact = torch.cat([self.exact[part], new], dim=2) if part in self.exact else new
    if surplus := self.surplus(exact.shape[2]):
        self.store(part, exact[:, :, :surplus])
    self.exact[part] = exact.clone()
    return torch.cat([*old, exact], dim=2)


ONCE = (
    "the whole history was quantized again: its error grows each time. Quantize only the tokens that leave the residual"
)
MISTAKES = [
    Mistake(ONCE, layer(store=requantizes)),
    Mistake(
        "the exact tokens are missing: return the codes, read back, and behind them all exact tokens",
        layer(joined=lambda self, old, exact, new: torch.cat(old, dim=2) if old else exact[:, :, :0]),
    ),
    Mistake(
        "the residual is missing on read: between the codes and the new tokens stand those that were exact already",
        layer(joined=lambda self, old, exact, new: torch.cat([*old, new], dim=2)),
    ),
    Mistake(
        "the newest tokens stand first; the order is that of the text: codes, then exact tokens, the new ones last",
        layer(joined=lambda self, old, exact, new: torch.cat([exact, *old], dim=2)),
    ),
    Mistake(
        "the blocks were joined newest first; the order is that of the text",
        layer(joined=lambda self, old, exact, new: torch.cat([*old[::-1], exact], dim=2)),
    ),
    Mistake("the codes were not read back: old tokens are missing", layer(joined=lambda self, old, exact, new: exact)),
    Mistake(
        "only the new tokens were returned; attention needs all of them",
        layer(joined=lambda self, old, exact, new: new),
    ),
    Mistake(
        "the newest tokens were quantized and the older ones stayed exact; it is the oldest of them that leave",
        layer(append=from_the_wrong_end),
    ),
    Mistake(
        "tokens that leave now were returned as codes; what was exact when update was called is returned exact. "
        "Quantize for the next call",
        layer(append=quantizes_first),
    ),
    Mistake("each new token became codes at once: the last `residual` tokens stay exact", layer(append=all_codes)),
    Mistake(
        "all exact tokens became codes at once; only those leave that are more than `residual`",
        layer(surplus=lambda self, tokens: tokens if tokens > self.residual else 0),
    ),
    Mistake(
        "one token more than `residual` stays exact",
        layer(surplus=lambda self, tokens: max(tokens - self.residual - 1, 0)),
    ),
    Mistake(
        "one token less than `residual` stays exact", layer(surplus=lambda s, tokens: max(tokens - s.residual + 1, 0))
    ),
    Mistake(
        "one token leaves at a time, but a long prompt brings many: all beyond `residual` leave",
        layer(surplus=lambda self, tokens: int(tokens > self.residual)),
    ),
    Mistake("nothing was quantized: nothing is saved", layer(surplus=lambda self, tokens: 0)),
    Mistake("the keys were quantized and the values were not", layer(append=keys_alone)),
    Mistake("a new block replaced the older ones; append it to self.blocks[part]", layer(store=last_block_alone)),
    Mistake(
        "tokens that were quantized are among the exact ones too, so they are there twice: keep exact[:, :, surplus:]",
        layer(append=exact_kept_too),
    ),
]


def view_kept(self, part, new):
    result = Residual.append(self, part, new)
    if new.shape[2] == self.exact[part].shape[2]:
        self.exact[part] = new
    return result


MISTAKES.append(
    Mistake("your layer kept a view of the caller's tensor; keep a copy: [...].clone()", layer(append=view_kept))
)
