"""Task 05a: `crop` of a layer that keeps everything."""

from .layers_02 import Reference
from .playing import make, states
from .positions import where
from .runner import Stopped, run
from .task import Case, Mistake, Wrong, compare, task
from .words import Phrase, words


def crops(what, tokens, *counts, explain=None):
    """A case: read `tokens` tokens, crop by each of `counts`, read two more; which of the tokens are held each time."""

    def play(answer, seen):
        layer, given = make(answer), states(9, 10, tokens + 2, 11)  # more than tokens: a cut along any of them is seen
        if not callable(getattr(layer, "crop", None)):
            raise Wrong(expected="a class with a method `crop(self, n)`", came=f"{answer.__name__} without one")
        run(answer, layer.update, *(part[:, :, :tokens].clone() for part in given))
        for count in counts:
            seen[f"what crop({count}) does"] = _outcome(answer, layer, count, tokens)
            for part, origin in zip(("keys", "values"), given, strict=True):
                held = getattr(layer, part, None)
                name = f"tokens whose {part} are held after crop({count})"
                known = where(held, origin) if hasattr(held, "ndim") else Phrase(words(held))
                seen[name] = [] if held is None else known
        returned = run(answer, layer.update, *(part[:, :, tokens:].clone() for part in given))
        seen["tokens that the next update returns"] = where(returned[0], given[0])

    return Case(what, play, explain)


def _outcome(answer, layer, count, tokens):
    """Whether a crop raises. An error that may be meant is a result; any other ends the case."""
    try:
        run(answer, layer.crop, count)
    except Stopped as stop:
        error = stop.what.split(":")[0]
        if stop.kind != "error" or (-tokens <= count <= 0 and error != "ValueError"):
            raise
        return Phrase(f"raises {error}")
    return Phrase("raises nothing")


def explain_crop(label, expected, came):
    if label.startswith("what crop("):
        if expected == "raises ValueError" and came == "raises nothing":
            return "a positive count has to be refused: `raise ValueError(...)`; in old code it meant something else"
        if expected == "raises ValueError":
            return f"refused, but the kind of error for a bad value is ValueError; here it {came}"
        if "crop(0)" in label:
            return "crop(0) removes none, and is no error: refuse only n > 0"
        if "crop(-9)" in label:
            return "more tokens to remove than there are empties the layer; that is no error"
        return "minus the number of tokens to remove is what crop is for: refuse only n > 0"
    if "after crop(2)" in label:
        return "the layer was changed before it refused: look at n first, then change"
    return None


CROPS_OF_SIX = [
    crops("six tokens of 9 sequences and 10 heads, crop(-2)", 6, -2, explain=explain_crop),
    crops("six tokens of 9 sequences and 10 heads, crop(0)", 6, 0, explain=explain_crop),
    crops("six tokens of 9 sequences and 10 heads, crop(-9): more than there are", 6, -9, explain=explain_crop),
    crops("six tokens of 9 sequences and 10 heads, crop(2): a positive count", 6, 2, explain=explain_crop),
    crops("eight tokens of 9 sequences and 10 heads, crop(-1) and then crop(-3)", 8, -1, -3, explain=explain_crop),
]


class Right(Reference):
    def crop(self, n):
        if n > 0:
            raise ValueError("n is minus the number of tokens to remove")
        length = max(0, self.keys.shape[-2] + n)
        self.keys, self.values = self.keys[:, :, :length], self.values[:, :, :length]


def variant(cut, values=None):
    """A class that refuses positive counts and cuts with `cut(states, n)`; the values with `values`, where given."""

    def crop(self, n):
        if n > 0:
            raise ValueError
        self.keys, self.values = cut(self.keys, n), (values or cut)(self.values, n)

    return type("Layer", (Reference,), {"crop": crop})


def back(states, n):
    return states[:, :, : max(0, states.shape[2] + n)]


def cut_elsewhere():
    """Mistakes of those who cut along an axis that is not the tokens': at n, or at the length that is left."""
    cuts = {
        "sequences": lambda states, end: states[:end],
        "heads": lambda states, end: states[:, :end],
        "channels": lambda states, end: states[..., :end],
    }
    for name, cut in cuts.items():
        said = f"{name} were removed: tokens are the third axis, [:, :, :length]"
        yield Mistake(said, variant(lambda states, n, cut=cut: cut(states, n)))
        yield Mistake(said, variant(lambda states, n, cut=cut: cut(states, max(0, states.shape[2] + n))))


CROP_MISTAKES = [
    Mistake(
        "`[:-0]` is `[:0]`: removing none removed all. Compute the length that is left and cut there",
        variant(lambda states, n: states[:, :, :n]),
    ),
    Mistake(
        "the length went below zero, and a slice counts a negative end from the back: take max(0, length)",
        variant(lambda states, n: states[:, :, : states.shape[2] + n]),
    ),
    Mistake(
        "the first tokens went; the last ones are to go, the newest first", variant(lambda states, n: states[:, :, -n:])
    ),
    Mistake(
        "as many were kept as were to go: n says how many to remove, not how many to keep",
        variant(lambda states, n: states[:, :, :-n]),
    ),
    Mistake("only the keys were cropped; the values go with them", variant(back, lambda states, n: states)),
    Mistake("only the values were cropped; the keys go with them", variant(lambda states, n: states, back)),
    Mistake(
        "nothing was removed: was the shorter tensor put back into self.keys and self.values?",
        variant(lambda states, n: states),
    ),
    Mistake("everything went; n says how many tokens to remove", variant(lambda states, n: states[:, :, :0])),
    Mistake(
        "one token too many was removed: the slice up to `length` leaves `length` tokens",
        variant(lambda states, n: states[:, :, : max(0, states.shape[2] + n - 1)]),
    ),
    Mistake(
        "the values were cut twice as far as the keys: compute the length once, before either is cut",
        variant(back, lambda states, n: back(back(states, n), n)),
    ),
    *cut_elsewhere(),
]


@task("05a", "crop of your layer: -2, 0, more than there are, a positive count, twice in a row")
def task_05a(layer_class):
    """`layer_class`: a class with `update(keys, values)` and `crop(n)`, n minus the number of tokens to remove."""
    compare(layer_class, Right, CROPS_OF_SIX, CROP_MISTAKES)
    return {"crops": "five cases, the right tokens left each time", "refused": "a positive count, with nothing changed"}
