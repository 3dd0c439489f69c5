"""Task 06a: how many leading token ids two texts share."""

from itertools import takewhile
from os.path import commonprefix

from ..models.tiny import tiny_tokenizer
from .reserved import reserved
from .runner import run
from .task import Case, Mistake, compare, task

NUMBERS = [
    ("they differ at the first id", [7, 3, 9], [8, 3, 9]),
    ("they differ in the middle", [15, 26, 37, 48, 59], [15, 26, 40, 48, 59]),
    ("they differ at the last id", [15, 26, 37, 48], [15, 26, 37, 58]),
    ("the second goes on where the first ends", [15, 26, 37], [15, 26, 37, 48, 59]),
    ("the first goes on where the second ends", [15, 26, 37, 48, 59], [15, 26]),
    ("they are the same", [15, 26, 15, 26], [15, 26, 15, 26]),
    ("the same ids in another order", [15, 26, 37, 48], [15, 37, 26, 48]),
    ("nothing has been read yet", [], [15, 26]),
]


def shared(a, b):
    """The right answer."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(a, b, strict=False)))


def counted(what, a, b):
    def play(answer, seen):
        seen["leading ids that are equal"] = run(answer, answer, list(a), list(b))

    def explain(label, expected, came):
        if came is None and expected == min(len(a), len(b)):
            return "nothing was returned: is a `return` missing, also for a loop that runs to its end?"
        return None

    return Case(f"{what}: {a} and {b}" if len(b) < 6 else what, play, explain)


def two_cuts(tokenizer, text="Hi<|im_end|>"):
    """The same text as a tokenizer cuts it, and cut into single letters."""
    whole, letters = (
        [token for part in parts for token in tokenizer(part, add_special_tokens=False).input_ids]
        for parts in ([text], text)
    )
    return "two texts that look the same and are cut into other tokens", whole, letters


def none_is_zero(a, b):
    differ = [place for place, pair in enumerate(zip(a, b, strict=False)) if pair[0] != pair[1]]
    return differ[0] if differ else 0


def runs_over(a, b):
    count = 0
    while a[count] == b[count]:
        count += 1
    return count


def runs_over_second(a, b):
    return next((place for place in range(len(a)) if a[place] != b[place]), len(a))


def strict(a, b):
    for count, (x, y) in enumerate(zip(a, b, strict=True)):
        if x != y:
            return count
    return len(a)


def with_text(tokenizer):
    """Mistakes of those who compare what the ids spell."""

    def letters(a, b):
        return len(commonprefix([tokenizer.decode(a), tokenizer.decode(b)]))

    def cut_again(a, b):
        return len(tokenizer(commonprefix([tokenizer.decode(a), tokenizer.decode(b)])).input_ids)

    def kept_whole(a, b):
        return max(n for n in range(len(a) + 1) if tokenizer.decode(b).startswith(tokenizer.decode(a[:n])))

    said = "text was compared: the same words can be other tokens, and a cache holds tokens. Compare the ids"
    return [Mistake(said, answer) for answer in (letters, cut_again, kept_whole)]


PREFIX_MISTAKES = [
    Mistake("that is the length of the shorter one; count while the ids are equal", lambda a, b: min(len(a), len(b))),
    Mistake("that is the length of the longer one; count while the ids are equal", lambda a, b: max(len(a), len(b))),
    Mistake(
        "one too many: the id at which they part is not shared", lambda a, b: min(shared(a, b) + 1, len(a), len(b))
    ),
    Mistake("one too many: the id at which they part is not shared", lambda a, b: shared(a, b) + 1),
    Mistake("one too few: indices count from 0, so index 2 is the third id", lambda a, b: shared(a, b) - 1),
    Mistake("one too few: indices count from 0, so index 2 is the third id", lambda a, b: max(shared(a, b) - 1, 0)),
    Mistake(
        "ids behind the first difference were counted too; there everything has changed, so stop at it",
        lambda a, b: sum(x == y for x, y in zip(a, b, strict=False)),
    ),
    Mistake("the order counts: compare the ids place by place", lambda a, b: len(set(a) & set(b))),
    Mistake("compared from the right; a cache is read from the left", lambda a, b: shared(a[::-1], b[::-1])),
    Mistake("the ids themselves came back; return how many they are", lambda a, b: a[: shared(a, b)]),
    Mistake("where no difference is found, all of the shorter one is shared, not nothing", none_is_zero),
    Mistake("one text can end before they part: look only as far as the shorter one reaches", runs_over),
    Mistake("one text can end before they part: look only as far as the shorter one reaches", runs_over_second),
    Mistake("the lists may have different lengths: zip(a, b) without strict=True ends with the shorter one", strict),
]


@task("06a", "common_prefix on lists of ids: they differ at the front, in the middle, at the end, or not at all")
def task_06a(function, tokenizer=None):
    """`function(a, b)`, two lists of ids -> how many leading ids are equal. `tokenizer`: makes the last case."""
    tokenizer = tokenizer or tiny_tokenizer()
    cases = [counted(*numbers) for numbers in (*NUMBERS, two_cuts(tokenizer))]
    with reserved(common_prefix="prefix", continue_from="prefix"):
        compare(function, shared, cases, PREFIX_MISTAKES + with_text(tokenizer))
    return {
        "counted": f"right in all {len(cases)} cases",
        "text": "the last case was one text, cut into other tokens: it looks the same, and the ids differ",
    }
