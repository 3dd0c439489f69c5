"""Task 02a: a layer that grows by concatenation; and the cases that 02b shares with it."""

import torch

from .playing import in_model, moved, updates
from .task import Mistake, compare, task


class Reference:
    """The right answer to both, as far as what it returns."""

    keys = values = None

    def update(self, keys, values):
        held = ([], []) if self.keys is None else ([self.keys], [self.values])
        self.keys, self.values = (torch.cat([*old, new], dim=-2) for old, new in zip(held, (keys, values), strict=True))
        return self.keys, self.values


def cases(explain, explain_last=None):
    """From the smallest to the most crowded; the last is about who owns what, and has an `explain` of its own."""
    return [
        updates("three tokens one at a time, 1 sequence, 1 head", [1, 1, 1], explain=explain),
        updates("two layers of one model, fed in turns", [1, 2, 1], layers=2, explain=explain),
        updates("a prompt of 4 tokens, then 1, 1, 2; 1 sequence, 3 heads", [4, 1, 1, 2], 1, 3, 4, explain=explain),
        updates("a prompt of 2 tokens, then 7, 1, 1; 3 sequences, 2 heads", [2, 7, 1, 1], 3, 2, 4, explain=explain),
        updates("a prompt of 2 tokens, then 1, 1, in bfloat16", [2, 1, 1], explain=explain, dtype=torch.bfloat16),
        updates(OVERWRITTEN, [2, 1, 1], 1, 2, 2, overwrite=True, explain=explain_last),
    ]


def explain_shared(label, expected, came):
    """Where the first update of a new object returns too much."""
    if label.startswith("what update") and came is not None:
        return "return two tensors, the keys and the values: return self.keys, self.values"
    longer = came is not None and came.ndim == 4 and came.shape[-2] > expected.shape[-2]
    if "update 1" in label and longer and came[:, :, -expected.shape[-2] :].equal(expected):
        if came.equal(torch.cat([expected, expected], dim=-2)):
            return "the first tokens stand there twice: join only when there are old tokens; is the `else` missing?"
        return (
            "a new layer already holds the tokens of another one: assign to self.keys in update, not to the class, "
            "nor to a list made once for the class"
        )
    return None


OVERWRITTEN = "the caller writes over its tensors after each update"


def variant(update):
    """A class like the learner's, with this `update`."""
    return type("Layer", (), {"keys": None, "values": None, "update": update})


def joined(dim, order=1):
    def update(self, keys, values):
        if self.keys is not None:
            keys, values = torch.cat([self.keys, keys][::order], dim), torch.cat([self.values, values][::order], dim)
        self.keys, self.values = keys.clone(), values.clone()
        return self.keys, self.values

    return variant(update)


def keeps_the_callers(self, keys, values):
    first = self.keys is None
    self.keys = keys if first else torch.cat([self.keys, keys], dim=-2)
    self.values = values if first else torch.cat([self.values, values], dim=-2)
    return self.keys, self.values


def without_values(self, keys, values):
    self.keys = keys.clone() if self.keys is None else torch.cat([self.keys, keys], dim=-2)
    return self.keys, values


def old_alone(self, keys, values):
    before = self.keys, self.values
    now = Reference.update(self, keys, values)
    return now if before[0] is None else before


def half_kept(keys_too):
    """Keeps a copy of the keys or of the values, and the other one as it is."""

    def update(self, keys, values):
        if self.keys is None:
            self.keys, self.values = (keys.clone(), values) if keys_too else (keys, values.clone())
        else:
            self.keys, self.values = torch.cat([self.keys, keys], 2), torch.cat([self.values, values], 2)
        return self.keys, self.values

    return variant(update)


def joined_from_the_start(self, keys, values):
    self.keys, self.values = torch.cat([self.keys, keys], dim=-2), torch.cat([self.values, values], dim=-2)
    return self.keys, self.values


def asks_the_tensor(self, keys, values):
    return Reference.update(self, keys, values) if not self.keys else (self.keys, self.values)


def never_grows(self, keys, values):
    if self.keys is None:
        self.keys, self.values = keys.clone(), values.clone()
    return self.keys, self.values


def newest_alone(self, keys, values):
    first = self.keys is None
    return Reference.update(self, keys if first else keys[:, :, -1:], values if first else values[:, :, -1:])


def keys_behind_values(self, keys, values):
    return Reference.update(self, keys, values if self.keys is None else keys)


CALLERS = "keep keys.clone(), or what torch.cat returns"
HALF = (
    f"your layer kept a copy of the {{}}, and of the {{}} the caller's own tensor: {CALLERS}; the same for the values"
)
WRONG_AXIS = (
    "the new tokens were joined along the axis of the {}; in (batch, kv_heads, kv_len, head_dim) tokens are dim=-2"
)
MISTAKES = [
    Mistake(
        "only the new tokens were returned; attention has to look at the old ones too, so return all that are held",
        variant(lambda self, keys, values: (keys, values)),
    ),
    Mistake(WRONG_AXIS.format("sequences (dim=0)"), joined(0)),
    Mistake(WRONG_AXIS.format("heads (dim=1)"), joined(1)),
    Mistake(WRONG_AXIS.format("channels (dim=-1)"), joined(-1)),
    Mistake("the new tokens stand before the old ones; the order is that of the text, old then new", joined(-2, -1)),
    Mistake("the tokens held were returned before the new ones were added", variant(old_alone)),
    Mistake("the keys grow and the values do not; both have to", variant(without_values)),
    Mistake("the values were put among the keys", variant(lambda s, k, v: Reference.update(s, k, k.clone()))),
    Mistake(
        "your layer kept the caller's own tensor, not a copy, so its history changed when the caller reused that "
        f"memory; {CALLERS}",
        variant(keeps_the_callers),
    ),
    Mistake(HALF.format("keys", "values"), half_kept(True)),
    Mistake(HALF.format("values", "keys"), half_kept(False)),
    Mistake(
        "torch.cat returns a new tensor and leaves the old ones as they are: self.keys = torch.cat(...)",
        variant(never_grows),
    ),
    Mistake(
        "at the first call there is nothing to join: where self.keys is None, keep a copy of the new tokens",
        variant(joined_from_the_start),
    ),
    Mistake("ask `if self.keys is None`: a tensor as a whole is neither true nor false", variant(asks_the_tensor)),
    Mistake("only the last of the new tokens was joined; an update may bring several", variant(newest_alone)),
    Mistake(
        "new keys were joined to the old values; the values have new values of their own", variant(keys_behind_values)
    ),
    Mistake(
        "keys and values are swapped: return the keys first",
        variant(lambda self, keys, values: Reference.update(self, keys, values)[::-1]),
    ),
]


@task("02a", "GrowingLayer.update on small numbers in several shapes, then inside a model")
def task_02a(layer_class, model=None):
    """`layer_class`: a class with `update(keys, values)`. `model`: where to try it; the tiny random one if None."""
    compare(layer_class, Reference, cases(explain_shared, explain_shared), MISTAKES)
    sentence, tokens = in_model(layer_class, model), 40
    cost = f"to append {tokens} tokens one by one, {moved(layer_class, tokens):,} tokens were copied ({tokens} are new)"
    return {"small": "six cases, every number as expected", "model": sentence, "cost": cost}
