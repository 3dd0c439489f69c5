"""Which tokens a learner's layer hands to attention, told as positions in the text.

Every number that a layer is fed is different, so a returned key gives away which token it belongs to. Positions say
more than numbers: "expected [3, 4, 5, 6], came [2, 3, 4, 5, 6]" is half of the diagnosis.
"""

import torch

from .cost import held, tokens_in
from .playing import is_pair, kind, make, states
from .runner import run
from .task import Case, Wrong
from .words import Phrase, words


def where(tensor, given):
    """The position in `given` of each token of `tensor`, both (batch, kv_heads, kv_len, head_dim).

    A list with "?" for what is none of the tokens given; the shape in words where it cannot be compared.
    """
    if tensor.ndim != 4 or tensor.shape[:2] + tensor.shape[3:] != given.shape[:2] + given.shape[3:]:
        return Phrase(words(tensor))
    places = []
    for token in tensor.unbind(2):
        matches = (given == token.unsqueeze(2)).all(dim=-1).all(dim=1).all(dim=0).nonzero()
        places.append(int(matches[0]) if len(matches) else "?")
    return places


HELD = "tokens held after each update"


def returned(
    what, chunks, arguments=(), batch=1, heads=1, head_dim=2, overwrite=False, with_mask=False, explain=None, most=None
):
    """A case: feed `chunks` (tokens in each update) and write down the positions that each update returns.

    `arguments`: for the constructor of the learner's class. `overwrite`: the caller writes over its tensors after each
    update. `with_mask`: the layer has a method `mask(q_len)`, asked before each update; then also the positions that
    each new token may look at. `most`: so many tokens may be held between two updates, looked at in the end.
    """

    def play(answer, seen):
        layer, given, start, counts = make(answer, *arguments), None, 0, []
        if with_mask and not callable(getattr(layer, "mask", None)):
            raise Wrong(expected="a class with a method `mask(self, q_len)`", came=f"{answer.__name__} without one")
        for turn, tokens in enumerate(chunks, 1):
            new = states(batch, heads, tokens, head_dim, start)
            start += new[0].numel()
            given = new if given is None else [torch.cat(pair, dim=2) for pair in zip(given, new, strict=True)]
            given = [tensor.clone() for tensor in given]
            mask = run(answer, layer.mask, tokens) if with_mask else None
            both = run(answer, layer.update, *new)
            seen[f"what update {turn} returned"] = (
                Phrase("two tensors, the keys and the values") if is_pair(both) else kind(both)
            )
            if not is_pair(both):
                return
            for part, tensor, origin in zip(("keys", "values"), both, given, strict=True):
                seen[f"positions of the {part} that update {turn} returned"] = where(tensor, origin)
            if with_mask:
                columns = seen[f"positions of the keys that update {turn} returned"]
                _looks(seen, f"the mask for update {turn}", mask, columns, given, tokens)
            if overwrite:
                new[0].fill_(0), new[1].fill_(0)
            if most is not None:
                allowed = min(sum(chunks[:turn]), most)
                counts.append(max(allowed, tokens_in(layer, 2 * batch * heads * head_dim)))
        if most is not None:
            seen[HELD] = counts

    def why(label, expected, came):
        if label == HELD:
            return HOARDED if came[-1] >= sum(chunks) else LATE
        if label.startswith("what update") and came is not None:
            return "return two tensors: return keys, values"
        return explain and explain(label, expected, came)

    return Case(what, play, why)


LATE = (
    "the right tokens are returned, but old ones are dropped at the next update only; until then a whole prompt stays "
    "held. Drop them in the same update, before you return"
)
HOARDED = "the right tokens are returned, but old ones are still held somewhere: keep only what comes back"


def _looks(seen, name, mask, columns, given, tokens):
    """Write down what each of the `tokens` newest tokens may look at, by the mask and the positions of its columns.

    `name`: how the mask itself is called."""
    first = given[0].shape[2] - tokens
    rows = mask if mask is None else rows_of(mask, tokens, len(columns))
    usable = isinstance(rows, list)
    size = f"({tokens}, {len(columns)}), for {tokens} new and {len(columns) - tokens} held tokens"
    seen[name] = Phrase(f"True and False, {size}") if usable else rows
    if not usable:
        return
    for number, row in enumerate(rows):
        seen[f"positions that token {first + number} may look at"] = [columns[column] for column in row]


def rows_of(mask, q_len, kv_len):
    """For each row of a boolean mask the columns that are True; what it is instead, in words, if it is no such mask."""
    if not isinstance(mask, torch.Tensor):
        return Phrase(words(mask))
    if mask.shape != (q_len, kv_len):
        return Phrase(f"{words(mask, {})}, not ({q_len}, {kv_len})")
    if mask.dtype != torch.bool:
        return Phrase(f"numbers of type {mask.dtype}, not True and False")
    return [row.nonzero().flatten().tolist() for row in mask]


def check_held(answer, most, arguments=(), tokens=40, at_once=False):
    """Wrong if an object of the learner's class has memory for more than `most` tokens after `tokens` of them.

    They come one at a time, or all `at_once`, as a prompt does. Memory is that of the whole tensor behind a view.
    Returns the number of tokens that it is for.
    """
    layer, size = make(answer, *arguments), tokens if at_once else 1
    for start in range(0, tokens, size):
        run(answer, layer.update, *states(1, 1, size, 2, 4 * start))
    count, shown = held(layer) // 4, tokens_in(layer, 4)  # keys and values of 2 channels
    if count > most:
        how = f"a prompt of {tokens:,} tokens" if at_once else f"{tokens} tokens, one at a time"
        raise Wrong(
            tested=f"the memory held after {how}",
            expected=f"room for at most {most} tokens, by untyped_storage().nbytes() of what is kept",
            came=f"room for {count}",
            likely=HOARDED if shown > most else VIEW.format(shown, "s" * (shown != 1), count),
        )
    return count


VIEW = (
    "what is kept is a view: it shows {} token{}, and the tensor behind it, of {:,}, stays in memory as long as the "
    "view does. A slice shares memory; its .clone() has its own"
)
