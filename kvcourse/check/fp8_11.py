"""Task 11d: where eight numbers land in eight-bit floating point."""

import math

import torch

from .plain import number
from .task import Case, Mistake, Unfinished, Wrong, compare, task
from .words import words

NUMBERS = (0.001, 1.05, 1.11, 5.0, 5.3, 103.0, 600.0, 1_000.0)
SCALE = 2.0
_EVERY = torch.arange(256, dtype=torch.uint8).view(torch.float8_e4m3fn).float()
FP8 = _EVERY[_EVERY.isfinite()].unique().tolist()


def lands(number, scale=SCALE, most=448.0):
    """What a number is read back as: float8_e4m3fn, with a scale, and nothing beyond 448."""
    kept = torch.tensor(min(number / scale, most))
    return kept.to(torch.float8_e4m3fn).float().item() * scale


def finer(number, steps, scale=SCALE, most=448.0, least=2.0**-6, whole=round):
    """A float with so many steps from one power of two to the next, by arithmetic."""
    kept = min(number / scale, most)
    power = 2.0 ** torch.tensor(max(kept, least)).log2().floor().item()
    return whole(kept / power * steps) * power / steps * scale


def predicted(rule):
    """The answer of somebody who thinks so."""
    return {number: rule(number) for number in NUMBERS}


RIGHT = predicted(lands)


def evenly(number, values=252):
    step = 2 * 448 / values * SCALE
    return min(round(number / step), values // 2) * step


def neighbours(number):
    """The two fp8 numbers around `number / SCALE`."""
    kept = number / SCALE
    return max(x for x in FP8 if x <= min(kept, 448)), min(x for x in FP8 if x >= min(kept, 448))


def asked(number_):
    def play(answer, seen):
        seen[f"{number_:g} is read back as"] = number(answer.get(number_))

    return Case(f"the number {number_:g} with scale {SCALE:g}", play)


CLIPPED = "1,000 / 2 = 500 is more than 448, the largest number there is: it is clipped, and read back as 448 * 2"
EVEN = (
    "that is even spacing; a float has 8 steps from each power of two to the next, so they are fine near 0 and wide "
    "far from it"
)
SLIPS = {  # (number, what it is said to be read back as): what to say
    (1_000.0, 448.0): "448 is what is kept of 1,000; it is multiplied by 2 when it is read back",
    (600.0, 896.0): "600 / 2 = 300 is less than 448: divide first, then see whether it lies beyond the largest number",
    (600.0, 448.0): "600 / 2 = 300 is less than 448: divide first, then see whether it lies beyond the largest number",
    (0.001, 2.0**-8): "0 is an fp8 number, too, and 0.001 / 2 = 0.0005 is nearer to 0 than to 2 ** -9 = 0.00195",
    (0.001, 2.0**-9): "0 is an fp8 number, too, and 0.001 / 2 = 0.0005 is nearer to 0 than to 2 ** -9 = 0.00195",
}
for _number in NUMBERS:
    for _kept in neighbours(_number):
        _sentence = (
            f"{_number:g} / 2 = {_number / 2:g} lies between two fp8 numbers, and {_kept:g} is not the nearer one"
        )
        if _kept * SCALE != RIGHT[_number]:
            SLIPS.setdefault((_number, _kept * SCALE), _sentence)
MISTAKES = [
    *(Mistake(sentence, RIGHT | {number: landed}) for (number, landed), sentence in SLIPS.items()),
    Mistake(EVEN, predicted(evenly)),
    Mistake(EVEN, predicted(lambda number: min(round(number / 7), 128) * 7)),
    Mistake(EVEN, predicted(lambda number: min(round(number / 2), 448) * 2)),
    Mistake(CLIPPED, predicted(lambda number: finer(number, 8, most=1e9))),
    Mistake(CLIPPED, predicted(lambda number: lands(number) if number < 1_000 else 1_000.0)),
    Mistake(
        "the scale was left out: what is kept is number / 2. So 600 becomes 300, which still fits",
        predicted(lambda number: lands(number, scale=1.0)),
    ),
    Mistake(
        "the scale was taken once only: divide by it, land, and multiply again",
        predicted(lambda number: lands(number) / SCALE),
    ),
    Mistake(
        "the number was multiplied by the scale first; divide, land, multiply",
        predicted(lambda number: lands(number, scale=0.5)),
    ),
    Mistake("always rounded down; it is the nearest number", predicted(lambda n: neighbours(n)[0] * SCALE)),
    Mistake("always rounded up; it is the nearest number", predicted(lambda n: neighbours(n)[1] * SCALE)),
    Mistake(
        "3 bits of fraction are 8 steps from each power of two to the next; this looks like 4",
        predicted(lambda number: finer(number, 4)),
    ),
    Mistake(
        "3 bits of fraction are 8 steps from each power of two to the next; this looks like 16",
        predicted(lambda number: finer(number, 16)),
    ),
    Mistake("it is not kept as it is: look for the nearest number that fp8 has", predicted(lambda number: number)),
    Mistake(
        "very small numbers have an end too: the smallest fp8 number above 0 is 2 ** -9, and 0.001 / 2 is nearer to 0",
        predicted(lambda number: finer(number, 8, least=1e-9)),
    ),
]


def no_landing(landings):
    """What to say where no known mistake fits: why the first wrong number is none that fp8 can give back."""
    for given, right in RIGHT.items():
        came = number(landings[given])
        if isinstance(came, (int, float)) and came != right and came / SCALE not in FP8:
            power = 2.0 ** math.floor(math.log2(min(given / SCALE, 448)))
            step = f"from {power:g} to {2 * power:g} a step is {power / 8:g}"
            return f"{came:g} / 2 = {came / SCALE:g} is no fp8 number: {step}"
        if came != right:
            return "write a number, without quotes" if isinstance(came, str) else None
    return None


@task("11d", "your eight predictions against float8_e4m3fn")
def task_11d(landings):
    """`landings`: {number: what it is read back as} for each of the eight numbers."""
    if not isinstance(landings, dict):
        raise Wrong(expected="a dict such as {0.001: ..., 1.05: ..., ...}", came=words(landings))
    missing = [number for number in NUMBERS if landings.get(number) is ... or landings.get(number) is None]
    if missing:
        raise Unfinished(f"a number for {', '.join(f'{number:g}' for number in missing)}")
    try:
        compare(landings, RIGHT, [asked(number) for number in NUMBERS], MISTAKES, tolerance=1e-4)
    except Wrong as wrong:
        likely = wrong.lines.pop("likely", None) or no_landing(landings)
        raise Wrong(**wrong.lines, likely=likely) from None
    return {"landed": "all eight as torch.float8_e4m3fn says", "exact": "5; the others moved, 1,000 by more than 100"}
