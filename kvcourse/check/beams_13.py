"""Task 13b: a beam reorder that reaches every tensor."""

import functools
from dataclasses import dataclass

import torch

from ..containers import DynamicCache
from ..encoder_decoder import EncoderDecoderCache
from .objects import toy
from .runner import run
from .task import Case, Mistake, Wrong, compare, task
from .words import Phrase, words


@dataclass
class Layer:
    """The two tensors of a layer, (batch, kv_heads, kv_len, head_dim)."""

    keys: torch.Tensor
    values: torch.Tensor


@dataclass
class Side:
    layers: list


@dataclass
class Both:
    """An encoder-decoder cache with nothing in it but tensors."""

    self_attention_cache: Side
    cross_attention_cache: Side

    def tensors(self):
        """(name in words, layer, "keys" or "values") of every tensor."""
        for side, name in ((self.self_attention_cache, "text"), (self.cross_attention_cache, "source")):
            for number, layer in enumerate(side.layers):
                for part in ("keys", "values"):
                    yield f"{part} of layer {number}, {name} side", layer, part


class Beams(EncoderDecoderCache):
    """A real cache whose beams are reordered by the learner's function."""

    def __init__(self, answer):
        super().__init__(DynamicCache(), DynamicCache())
        self.answer = answer

    def reorder_cache(self, beam_idx):
        sides = self.self_attention_cache, self.cross_attention_cache
        both = Both(*(Side([Layer(layer.keys, layer.values) for layer in side.layers]) for side in sides))
        run(self.answer, self.answer, both, beam_idx)
        for side, plain in zip(sides, (both.self_attention_cache, both.cross_attention_cache), strict=True):
            for layer, changed in zip(side.layers, plain.layers, strict=True):
                for part in ("keys", "values"):
                    getattr(layer, part).copy_(getattr(changed, part).clone())


def four_beams(number, reorder=None):
    """What the toy T5 makes of a number with four beams: a list of texts, the best one first.

    `reorder(cache, beam_idx)` is called after each step; None runs without a cache, where nothing can get lost.
    """
    return list(_plain_beams(number)) if reorder is None else _beams(number, cache=Beams(reorder))


@functools.cache
def _plain_beams(number):
    return _beams(number, use_cache=False)


@torch.no_grad()
def _beams(number, **how):
    model, tokenizer = toy("toy-t5")
    ids = model.generate(**tokenizer(number, return_tensors="pt"), num_beams=4, num_return_sequences=4, **how)
    return tokenizer.batch_decode(ids, skip_special_tokens=True)


def rows(*order, layers=2):
    """A case: rows `order` of a batch of as many, in every layer and on both sides."""

    def play(answer, seen):
        both, start = Both(Side([]), Side([])), 0
        for side, tokens in ((both.self_attention_cache, 3), (both.cross_attention_cache, 5)):
            for _ in range(layers):
                shape, count = (len(order), 2, tokens, 2), len(order) * 4 * tokens
                pair = [torch.arange(start + part * count, start + (part + 1) * count) for part in (0, 1)]
                side.layers.append(Layer(*(numbers.float().view(shape) for numbers in pair)))
                start += 2 * count
        before = {name: getattr(layer, part).clone() for name, layer, part in both.tensors()}
        run(answer, answer, both, torch.tensor(order))
        for name, layer, part in both.tensors():
            other = "values" if part == "keys" else "keys"
            partner = before[name.replace(part, other, 1)]
            seen[f"rows of the {name}"] = origins(getattr(layer, part), before[name], other, partner)

    return Case(
        f"a batch of {len(order)}, beam_idx {list(order)}, {layers} layer{'s' * (layers > 1)} on each side",
        play,
        explain,
    )


def explain(label, expected, came):
    """What to say where rows of the layer's other tensor came."""
    text = str(came)
    if "values row" in text:
        return "values were put in the place of keys: each of the two tensors is reordered by itself"
    if "keys row" in text:
        return "the keys came back as values, too: each of the two tensors is reordered by itself"
    return None


def origins(tensor, before, other, partner):
    """For each row of `tensor` the row of `before` that it was; or of `partner`, the layer's `other` tensor."""
    if not isinstance(tensor, torch.Tensor) or tensor.shape != before.shape:
        return Phrase(words(tensor))
    known = [*enumerate(before), *((f"{other} row {old}", row) for old, row in enumerate(partner))]
    return [next((old for old, row in known if row.equal(new)), "?") for new in tensor]


REORDERING = [rows(0, 0), rows(1, 0, layers=1), rows(1, 2, 0), rows(0, 0, 3, 1), rows(3, 3, 0, 2, layers=3)]


def reorder(both, beam_idx, touched=lambda name: True, pick=lambda tensor, beam_idx: tensor[beam_idx]):
    """The right answer; keywords make it leave tensors out, or pick other rows."""
    for name, layer, part in both.tensors():
        if touched(name):
            setattr(layer, part, pick(getattr(layer, part), beam_idx))


def but(**lines):
    return lambda both, beam_idx: reorder(both, beam_idx, **lines)


def in_place(tensor, beam_idx):
    for row, wanted in enumerate(beam_idx.tolist()):
        tensor[row] = tensor[wanted]
    return tensor


def sends(tensor, beam_idx):
    picked = tensor.clone()
    picked[beam_idx] = tensor
    return picked


def keys_for_both(both, beam_idx):
    reorder(both, beam_idx)
    for side in (both.self_attention_cache, both.cross_attention_cache):
        for layer in side.layers:
            layer.values = layer.keys


PLACE = (
    "rows were overwritten while they were still to be read: pick all rows first, tensor[beam_idx], then put them in"
)
FIRST = "the first layer only; each layer keeps tensors of its own"
REORDER_MISTAKES = [
    Mistake(PLACE, but(pick=in_place)),
    Mistake(PLACE, but(pick=in_place, touched=lambda name: "text" in name)),
    Mistake(PLACE, but(pick=in_place, touched=lambda name: "layer 0, text" in name)),
    Mistake(
        "the text side only. With one source all its rows are alike, so beams don't show it; a batch of several "
        "sources does",
        but(touched=lambda name: "text" in name),
    ),
    Mistake("the source side only: what the beams have written is on the other", but(touched=lambda n: "source" in n)),
    Mistake(FIRST, but(touched=lambda name: "layer 0" in name)),
    Mistake(FIRST, but(touched=lambda name: "layer 0, text" in name)),
    Mistake("the keys only: a row is its keys and its values", but(touched=lambda name: "keys" in name)),
    Mistake("the keys came back as values, too: each of the two tensors is reordered by itself", keys_for_both),
    Mistake("the values only: a row is its keys and its values", but(touched=lambda name: "values" in name)),
    Mistake(
        "the wrong direction: new row i is old row beam_idx[i], not the other way round",
        but(pick=sends),
    ),
    Mistake(
        "the first axis is the batch, where the beams are; the second one is the heads",
        but(pick=lambda tensor, idx: tensor[:, idx]),
    ),
    Mistake("sorted: the order of beam_idx counts", but(pick=lambda tensor, idx: tensor[idx.sort().values])),
    Mistake("each row once, although a good beam may be continued twice", but(pick=lambda t, idx: t[idx.unique()])),
    Mistake("nothing has moved: assign what you picked, or write it into the tensor", lambda both, beam_idx: None),
]


@task("13b", "your reorder: every tensor's rows, then four beams of the toy T5")
def task_13b(function):
    """`function(cache, beam_idx)`: put rows `beam_idx` in that order, in every layer and on both sides."""
    compare(function, reorder, REORDERING, REORDER_MISTAKES)
    for number in ("58319", "70142"):
        expected, came = four_beams(number), four_beams(number, function)
        if expected != came:
            place = next(place for place in range(4) if expected[place] != came[place])
            raise Wrong(tested=f"four beams for {number}, number {place}", expected=expected[place], came=came[place])
    return {"rows": "of every tensor as they should be, in five cases", "beams": "all four, for two numbers"}
