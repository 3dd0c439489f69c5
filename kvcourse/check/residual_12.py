"""Task 12a: a layer whose older tokens are codes and whose newest ones stay exact."""

import torch

from ..cache import Cache
from ..layers.blocks import QuantizedBuffer
from ..layers.quantized import QuantizedLayer
from ..quantize import PER_TOKEN, MaxRange
from .cost import held
from .playing import Adapter, first_difference, is_pair, make, some_ids, states, tiny
from .task import Case, Mistake, Wrong, compare, task
from .withheld import run_without, withheld
from .words import Phrase, words

OWN = [(QuantizedBuffer, "append"), (QuantizedLayer, "update")]
MARK = 1 / 64


class Marking:
    """A number format that loses nothing and tells on its users: each time through it adds 1/64 to every number."""

    def __init__(self):
        self.sizes = []  # tokens of each block made

    def quantize(self, x):
        """(batch, kv_heads, tokens, head_dim) -> a block that nobody but `dequantize` can read."""
        self.sizes.append(x.shape[2])
        return _Block(x.detach().clone())

    def dequantize(self, block, dtype):
        return (block._codes + MARK).to(dtype)


class _Block:
    def __init__(self, codes):
        self._codes = codes


def tokens_of(tensor, given):
    """The tokens of `tensor` as text: "0~ 1~ 2 3", with a ~ for each time that one was quantized."""
    if tensor.ndim != 4 or tensor.shape[:2] + tensor.shape[3:] != given.shape[:2] + given.shape[3:]:
        return Phrase(words(tensor))
    said = []
    for token in tensor.unbind(2):
        times = round(((token - (token * 2).round() / 2).abs().amax() / MARK).item())
        matches = (given == (token - times * MARK).unsqueeze(2)).all(dim=-1).all(dim=1).all(dim=0).nonzero()
        said.append(f"{int(matches[0])}{'~' * times}" if len(matches) else "?")
    return Phrase(" ".join(said) or "no tokens")


def feeding(what, chunks, residual, batch=1, heads=1, head_dim=2, overwrite=False):
    """A case: feed `chunks`, write down which tokens each update returns, and what was quantized meanwhile."""

    def play(answer, seen):
        formats, given, start = Marking(), None, 0
        layer = make(answer, formats, residual)
        for turn, tokens in enumerate(chunks, 1):
            new = states(batch, heads, tokens, head_dim, start)
            start += new[0].numel()
            given = new if given is None else [torch.cat(pair, dim=2) for pair in zip(given, new, strict=True)]
            given = [tensor.clone() for tensor in given]
            both = run_without(OWN, answer, layer.update, *new)
            if not is_pair(both) or any(part is None for part in both):
                empty = both is None or (isinstance(both, tuple) and None in both)
                seen[f"keys that update {turn} returned"] = None if empty else Phrase(words(both))
                return
            for part, tensor, origin in zip(("keys", "values"), both, given, strict=True):
                seen[f"{part} that update {turn} returned"] = tokens_of(tensor, origin)
            seen[f"tokens quantized until after update {turn}, keys and values together"] = sum(formats.sizes)
            if overwrite:
                new[0].fill_(0), new[1].fill_(0)

    return Case(f"{what}; a ~ marks a token read back from its codes", play)


CASES = [
    feeding("residual 2: six tokens, one at a time", [1] * 6, 2),
    feeding("residual 3: a prompt of 7 tokens, then 1, 1, 1; 2 sequences, 3 heads", [7, 1, 1, 1], 3, 2, 3, 4),
    feeding("residual 4: chunks of 3, 1, 5, 2", [3, 1, 5, 2], 4, 1, 2, 4),
    feeding("residual 0: 2, 1, 1", [2, 1, 1], 0),
    feeding("residual 2: the caller writes over its tensors", [1, 1, 3, 1, 1], 2, overwrite=True),
]


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


@task("12a", "TwoPartLayer: which tokens it returns, which of them are codes, and how often each was quantized")
def task_12a(layer_class):
    """`layer_class(format, residual)`, with `update(keys, values)`."""
    compare(layer_class, Residual, CASES, MISTAKES)
    _check_memory(layer_class)
    return {
        "small": "five cases: order of the text, the newest exact, each token quantized once",
        "memory": "after 40 tokens, 4 of them are held exactly",
        "model": _in_model(layer_class),
    }


def _check_memory(answer, tokens=40, residual=4):
    made = make(answer, Marking(), residual)
    for start in range(tokens):
        run_without(OWN, answer, made.update, *states(1, 1, 1, 2, 4 * start))
    exact = held(made) // 4  # keys and values of 2 channels
    if exact > 2 * residual:
        raise Wrong(
            tested=f"exact tokens held after {tokens} tokens, residual {residual}",
            expected=f"{residual}",
            came=f"room for {exact}",
            likely="the right tokens are returned, but exact copies of old ones are still held: keep "
            "exact[:, :, surplus:].clone()",
        )


@torch.no_grad()
def _in_model(answer, residual=4, parts=(6, 1, 1, 3, 1, 1)):
    """Run the class in the tiny model with a real format; Wrong unless it computes what the reference does."""
    model, number_format = tiny(), MaxRange(4, PER_TOKEN, 16)
    ids, logits = some_ids(model, 2, sum(parts)), []
    for kind in (Residual, answer):
        cache = Cache(layers=[Adapter(kind, number_format, residual) for _ in range(model.config.num_hidden_layers)])
        with withheld(*OWN):
            logits.append(torch.cat([model(part, cache=cache).logits for part in ids.split(list(parts), 1)], dim=1))
    if (start := first_difference(*logits)) is not None:
        raise Wrong(
            tested="the tiny model with 4-bit codes, in chunks",
            expected="the scores that such a cache gives",
            came=f"other scores from position {start} on",
        )
    return f"{sum(parts)} tokens in chunks, codes of 4 bits: the scores that such a cache has to give"
