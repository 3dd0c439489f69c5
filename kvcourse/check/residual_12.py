"""Task 12a: a layer whose older tokens are codes and whose newest ones stay exact."""

import torch

from ..cache import Cache
from ..layers.blocks import QuantizedBuffer
from ..layers.quantized import QuantizedLayer
from ..quantize import PER_TOKEN, MaxRange
from .cost import held
from .playing import Adapter, first_difference, is_pair, make, some_ids, states, tiny
from .residual_mistakes import MISTAKES, Residual
from .task import Case, Wrong, compare, task
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
    if tensor.dtype != given.dtype:
        return Phrase(f"numbers of type {tensor.dtype}")
    if tensor.ndim != 4 or tensor.shape[:2] + tensor.shape[3:] != given.shape[:2] + given.shape[3:]:
        return Phrase(words(tensor))
    said = []
    for token in tensor.unbind(2):
        times = round(((token - (token * 2).round() / 2).abs().amax() / MARK).item())
        matches = (given == (token - times * MARK).unsqueeze(2)).all(dim=-1).all(dim=1).all(dim=0).nonzero()
        said.append(f"{int(matches[0])}{'~' * times}" if len(matches) else "?")
    return Phrase(" ".join(said) or "no tokens")


def feeding(what, chunks, residual, batch=1, heads=1, head_dim=2, overwrite=False, dtype=torch.float32):
    """A case: feed `chunks`, write down which tokens each update returns, and what was quantized meanwhile."""

    def play(answer, seen):
        formats, given, start = Marking(), None, 0
        layer = make(answer, formats, residual)
        for turn, tokens in enumerate(chunks, 1):
            new = [tensor.to(dtype) for tensor in states(batch, heads, tokens, head_dim, start)]
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

    return Case(f"{what}. ~ marks a token read back from its codes, ? one that was never handed over", play)


CASES = [
    feeding("residual 2: six tokens, one at a time", [1] * 6, 2),
    feeding("residual 2: five tokens in float16", [1] * 5, 2, dtype=torch.float16),
    feeding("residual 3: a prompt of 7 tokens, then 1, 1, 1; 2 sequences, 3 heads", [7, 1, 1, 1], 3, 2, 3, 4),
    feeding("residual 4: chunks of 3, 1, 5, 2", [3, 1, 5, 2], 4, 1, 2, 4),
    feeding("residual 0: 2, 1, 1", [2, 1, 1], 0),
    feeding("residual 2: the caller writes over its tensors", [1, 1, 3, 1, 1], 2, overwrite=True),
]


@task("12a", "TwoPartLayer: which tokens it returns, which of them are codes, and how often each was quantized")
def task_12a(layer_class):
    """`layer_class(format, residual)`, with `update(keys, values)`."""
    compare(layer_class, Residual, CASES, MISTAKES)
    _check_memory(layer_class)
    return {
        "small": "six cases: order of the text, the newest exact, each token quantized once",
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
            likely="the right tokens are returned, but old ones are still held as numbers: keep what quantize returns "
            "in self.blocks, and of the exact ones exact[:, :, surplus:].clone() alone",
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
