"""Task 03a: two clocks for one answer."""

import torch

from .plain import number
from .runner import run
from .task import Case, Mistake, compare, task
from .words import Phrase, words

RETURNED, FIRST, EACH = "returned", "seconds to the first token", "seconds for each token after it"


class FakeClock:
    """A clock that stands still, except while a step runs. Calling it gives the seconds, as time.perf_counter does."""

    def __init__(self):
        self.now = 1_000.0

    def __call__(self):
        return self.now

    def tokens(self, seconds):
        """Tokens as a model gives them: each takes so many seconds."""
        for token, spent in enumerate(seconds):
            self.now += spent
            yield token


def timed(what, seconds):
    """A case: tokens that take so many seconds each; the first one includes the reading of the prompt."""

    def play(answer, seen):
        clock = FakeClock()
        both = run(answer, answer, clock.tokens(seconds), clock)
        if not isinstance(both, (tuple, list, torch.Tensor)) or len(both) != 2:
            seen[RETURNED] = both if both is None else Phrase(f"{words(both)}, not two numbers")
            return
        seen[RETURNED] = Phrase("two numbers")
        seen[FIRST], seen[EACH] = (number(one) for one in both)

    return Case(what, play, explain)


def explain(label, expected, came):
    if label == RETURNED and came is not None:
        return "return both: seconds to the first token, and seconds for each token after it"
    if label == FIRST and came == 0:
        return (
            "no step ran between the first two looks at the clock. list(tokens) runs all steps at once: look first, "
            "then go through `tokens`, and look after each"
        )
    if label == FIRST and isinstance(came, float) and 0 < came < 0.1:
        return "this is the computer's own clock; ask the `clock` that your function is given: clock()"
    return None


TIMED = [
    timed("2 s for the prompt, then 4 tokens of 0.5 s", [2.0, 0.5, 0.5, 0.5, 0.5]),
    timed("3 s for the prompt, then steps that grow: 0.25, 0.5, 0.5, 1.75 s", [3.0, 0.25, 0.5, 0.5, 1.75]),
    timed("0.5 s for a short prompt, then one step of 0.75 s", [0.5, 0.75]),
]


def two_clocks(tokens, clock):
    """The right answer."""
    start = clock()
    times = [clock() for _ in tokens]
    return times[0] - start, (times[-1] - times[0]) / (len(times) - 1)


def clocks(first, each):
    """An answer by formula, from n, the seconds of each step `s`, and their sum."""

    def answer(tokens, clock):
        times = [clock(), *(clock() for _ in tokens)]
        steps = [later - earlier for earlier, later in zip(times, times[1:], strict=False)]
        return first(steps), each(steps)

    return answer


def late_start(tokens, clock):
    tokens = iter(tokens)
    next(tokens)
    start = clock()
    times = [clock() for _ in tokens]
    return times[0] - start, (times[-1] - times[0]) / max(len(times) - 1, 1)


def all_at_once(tokens, clock):
    start = clock()
    count = len(list(tokens))
    return clock() - start, (clock() - start) / count


def right_first(steps):
    return steps[0]


def right_each(steps):
    return sum(steps[1:]) / (len(steps) - 1)


TIMED_MISTAKES = [
    Mistake(
        "the steps after the first are n - 1: reading the prompt already gives the first token",
        clocks(right_first, lambda s: sum(s[1:]) / len(s)),
    ),
    Mistake(
        "the average of all steps: the time of the prompt is in it, and a longer prompt would make it worse",
        clocks(right_first, lambda s: sum(s) / len(s)),
    ),
    Mistake(
        "the time of the prompt is still in it: count from the first token to the last",
        clocks(right_first, lambda s: sum(s) / (len(s) - 1)),
    ),
    Mistake(
        "the first decode step was counted into the first token: prefill itself gives that token",
        clocks(lambda s: s[0] + s[1], right_each),
    ),
    Mistake(
        "the first decode step was counted into the first token: prefill itself gives that token",
        clocks(lambda s: s[0] + s[1], lambda s: sum(s[2:]) / max(len(s) - 2, 1)),
    ),
    Mistake("the clock was started after the first token; ask it before you ask for a token", late_start),
    Mistake("all tokens were fetched before the clock was asked again; ask it after each token", all_at_once),
    Mistake("tokens come one by one, and nobody knows yet how many: count them as you go", lambda t, c: len(t)),
    Mistake("tokens come one by one: next(tokens) takes the first, a `for` loop the others", lambda t, c: t[0]),
    Mistake("`clock` is the clock; clock() is what it shows", lambda tokens, clock: (clock - clock, 0)),
    Mistake("milliseconds; seconds were asked for", clocks(lambda s: 1_000 * s[0], lambda s: 1_000 * right_each(s))),
    Mistake(
        "the average of what the clock showed; a step takes the difference of two looks",
        lambda tokens, clock: (2.0, sum(times := [clock() for _ in tokens]) / len(times)),
    ),
    Mistake("the two are swapped: first token first", clocks(right_each, right_first)),
    Mistake("the sum of the later steps; divide it by their number", clocks(right_first, lambda s: sum(s[1:]))),
    Mistake(
        "one step is not the average: later steps read more and take longer",
        clocks(right_first, lambda s: s[-1]),
    ),
    Mistake(
        "one step is not the average: later steps read more and take longer",
        clocks(right_first, lambda s: s[1]),
    ),
    Mistake(
        "the step in the middle (median); the average counts the slow steps, too",
        clocks(right_first, lambda s: sorted(s[1:])[(len(s) - 1) // 2]),
    ),
    Mistake(
        "tokens a second; seconds a token were asked for", clocks(right_first, lambda s: (len(s) - 1) / sum(s[1:]))
    ),
    Mistake("the moment on the clock; the time since the start is asked for", lambda t, c: (c.now + 2, 0.5)),
]


@task("03a", "two_clocks with a clock that is only moved by the steps, for three answers")
def task_03a(function):
    """`function(tokens, clock)` -> (seconds to the first token, seconds for each token after it)."""
    compare(function, two_clocks, TIMED, TIMED_MISTAKES, tolerance=1e-6)
    return {"clocks": "both right: for a long prompt, for steps that grow, for an answer of two tokens"}
