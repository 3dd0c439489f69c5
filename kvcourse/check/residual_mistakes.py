"""The right answer to task 12a, and the wrong ones that people give."""

import torch

from ..quantize import PER_TOKEN, HalfQuadratic
from .task import Mistake

OTHER = HalfQuadratic(4, PER_TOKEN)  # the format that stands in the notebook


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


def from_the_end(leaving=True, staying=True):
    """Slices that count the residual from the end; with a residual of 0 they are empty, or take everything."""

    def append(self, part, new):
        old = [self.format.dequantize(block, new.dtype) for block in self.blocks[part]]
        exact = torch.cat([self.exact[part], new], dim=2) if part in self.exact else new
        surplus = self.surplus(exact.shape[2])
        if surplus:
            self.store(part, exact[:, :, : -self.residual] if leaving else exact[:, :, :surplus])
        self.exact[part] = (exact[:, :, -self.residual :] if staying else exact[:, :, surplus:]).clone()
        return torch.cat([*old, exact], dim=2)

    return append


def last_block_alone(self, part, leaving):
    self.blocks[part] = [self.format.quantize(leaving)]


def exact_kept_too(self, part, new):
    old = [self.format.dequantize(block, new.dtype) for block in self.blocks[part]]
    exact = torch.cat([self.exact[part], new], dim=2) if part in self.exact else new
    if surplus := self.surplus(exact.shape[2]):
        self.store(part, exact[:, :, :surplus])
    self.exact[part] = exact.clone()
    return torch.cat([*old, exact], dim=2)


def in_type(dtype):
    """Reads blocks back in this type, whatever the new tokens are."""

    def append(self, part, new):
        old = [self.format.dequantize(block, dtype) for block in self.blocks[part]]
        exact = torch.cat([self.exact[part], new], dim=2) if part in self.exact else new
        if surplus := self.surplus(exact.shape[2]):
            self.store(part, exact[:, :, :surplus])
        self.exact[part] = exact[:, :, surplus:].clone()
        return self.joined(old, exact, new)

    return append


def one_part(blocks=None, exact=None, read=None, held=None):
    """Uses the same part for keys and values in one place: where blocks or exact tokens are kept, or looked up."""

    def append(self, part, new):
        old = [self.format.dequantize(block, new.dtype) for block in self.blocks[read or part]]
        before = held or part
        together = torch.cat([self.exact[before], new], dim=2) if before in self.exact else new
        surplus = self.surplus(together.shape[2])
        if surplus:
            self.blocks[blocks or part].append(self.format.quantize(together[:, :, :surplus]))
        self.exact[exact or part] = together[:, :, surplus:].clone()
        return torch.cat([*old, together], dim=2)

    return append


def other_format(self, part, leaving):
    self.blocks[part].append(OTHER.quantize(leaving))


def other_format_both_ways(self, part, new):
    old = [OTHER.dequantize(block, new.dtype) for block in self.blocks[part]]
    exact = torch.cat([self.exact[part], new], dim=2) if part in self.exact else new
    if surplus := self.surplus(exact.shape[2]):
        self.blocks[part].append(OTHER.quantize(exact[:, :, :surplus]))
    self.exact[part] = exact[:, :, surplus:].clone()
    return torch.cat([*old, exact], dim=2)


def view_kept(self, part, new):
    result = Residual.append(self, part, new)
    if new.shape[2] == self.exact[part].shape[2]:
        self.exact[part] = new
    return result


ONCE = (
    "the whole history was quantized again: its error grows each time. Quantize only the tokens that leave the residual"
)
AXIS = "tokens lie along axis 2 of (batch, kv_heads, tokens, head_dim): torch.cat(..., dim=2)"
DTYPE = "blocks are read back in one fixed type: self.format.dequantize(block, new.dtype)"
PART = "keys stand among the values: use `part` in each place, for the blocks and for the exact tokens"
ZERO = (
    "with a residual of 0 a slice from the end fails: -0 is 0, so exact[:, :, :-0] is empty and exact[:, :, -0:] is "
    "everything. Count from the front: surplus = max(exact.shape[2] - self.residual, 0)"
)
FORMAT = "the format that the layer was given is not used: self.format.quantize, not FOUR_BITS"
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
    Mistake(
        "with fewer tokens than the residual the surplus is negative, and a slice to -1 takes tokens all the same: "
        "max(..., 0)",
        layer(surplus=lambda self, tokens: tokens - self.residual),
    ),
    Mistake(AXIS, layer(joined=lambda self, old, exact, new: torch.cat([*old, exact], dim=1))),
    Mistake(AXIS, layer(joined=lambda self, old, exact, new: torch.cat([*old, exact], dim=-1))),
    Mistake(AXIS, layer(joined=lambda self, old, exact, new: torch.cat([*old, exact]))),
    Mistake(
        "`old` is a list of tensors, and a list in a list is no tensor: torch.cat([*old, exact], dim=2)",
        layer(joined=lambda self, old, exact, new: torch.cat([old, exact], dim=2)),
    ),
    *(Mistake(DTYPE, layer(append=in_type(dtype))) for dtype in (torch.float32, torch.bfloat16, torch.float16)),
    *(Mistake(PART, layer(append=one_part(**{place: "keys"}))) for place in ("blocks", "exact", "read", "held")),
    Mistake(PART, layer(append=one_part(exact="keys", held="keys"))),
    Mistake(PART, layer(append=one_part(blocks="keys", read="keys"))),
    Mistake(PART, layer(append=one_part("keys", "keys", "keys", "keys"))),
    Mistake(FORMAT, layer(store=other_format)),
    Mistake(FORMAT, layer(append=other_format_both_ways)),
    *(Mistake(ZERO, layer(append=from_the_end(*ends))) for ends in ((True, True), (True, False), (False, True))),
    Mistake(
        "nothing was quantized: count tokens with exact.shape[2], and compare with self.residual",
        layer(surplus=lambda self, tokens: 0),
    ),
    Mistake("the keys were quantized and the values were not", layer(append=keys_alone)),
    Mistake("a new block replaced the older ones; append it to self.blocks[part]", layer(store=last_block_alone)),
    Mistake(
        "tokens that were quantized are among the exact ones too, so they are there twice: keep exact[:, :, surplus:]",
        layer(append=exact_kept_too),
    ),
    Mistake("your layer kept a view of the caller's tensor; keep a copy: [...].clone()", layer(append=view_kept)),
]
