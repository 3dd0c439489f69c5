"""Task 07d: fresh, cached and output tokens of a bill."""

import functools

from ..bill import Usage, usage
from .runner import run
from .task import Case, Mistake, compare, task
from .words import Phrase, words

TWENTY = tuple(11 + number % 3 for number in range(20))
BILLS = [
    ("a prefix of 100 tokens, 3 questions, blocks of 1", (100, (5, 40, 7), 30, 1)),
    ("a prefix of 320 tokens, whole blocks of 16, 3 questions", (320, (5, 40, 7), 100, 16)),
    ("a prefix of 15 tokens, blocks of 16", (15, (30, 30, 30, 30), 1, 16)),
    ("a story of 303 tokens, 20 questions, blocks of 1", (303, TWENTY, 8, 1)),
    ("the same in blocks of 16", (303, TWENTY, 8, 16)),
    ("a single request", (64, (9,), 12, 16)),
]


def truth(prefix, questions, output, block):
    """(fresh, cached, output) of such requests, found by comparing the ids of their prompts."""
    start, requests = list(range(prefix)), []
    for number, tokens in enumerate(questions, 1):
        requests.append((start + [1_000 * number + token for token in range(tokens)], output))
    total = sum(usage(requests, block), Usage())
    return total.fresh, total.cached, total.output


def billing(what, given):
    """A case: what a function says of these requests."""

    def play(answer, seen):
        prefix, questions, output, block = given
        said = run(answer, answer, prefix, list(questions), output, block)
        names = ("cached tokens", "fresh tokens", "output tokens")
        if not isinstance(said, (list, tuple)) or len(said) != 3:
            seen[names[0]] = said if said is None else Phrase(f"{words(said)}, and not three numbers")
            return
        seen.update(zip(names, (said[1], said[0], said[2]), strict=True))

    return Case(what, play)


def bill(prefix, questions, output, block, blocks=None, hits=None, classes=None):
    """The right answer by formula, and with other keywords the wrong ones."""
    hits = len(questions) - 1 if hits is None else hits(questions)
    cached = (blocks or (lambda tokens, block: tokens // block * block))(prefix, block) * hits
    fresh = prefix * len(questions) + sum(questions) - cached
    said = fresh, cached, output * len(questions)
    return classes(prefix, questions, output, *said) if classes else said


def but(**lines):
    return functools.partial(bill, **lines)


def discounted(prefix, questions, output, fresh, cached, written):
    return fresh, cached + output * (len(questions) - 1), output


def left_over_lost(prefix, questions, output, fresh, cached, written):
    return prefix + sum(questions), cached, written


def question_too(prefix, questions, output, block):
    found = [(prefix + question) // block * block for question in questions[1:]]
    total = prefix * len(questions) + sum(questions)
    return total - sum(found), sum(found), output * len(questions)


def rounded_at_the_end(prefix, questions, output, block):
    fresh, cached, written = bill(prefix, questions, output, 1)
    whole = cached // block * block
    return fresh + cached - whole, whole, written


BILL_MISTAKES = [
    Mistake(
        "a part of a block was billed as a whole one; only full blocks are found again, so round down",
        but(blocks=lambda tokens, block: -(-tokens // block) * block),
    ),
    Mistake(
        "the first request finds nothing: it is cold, and all of its prompt is fresh",
        but(hits=len),
    ),
    Mistake(
        "output got the discount: nobody had computed these tokens before, so all are output", but(classes=discounted)
    ),
    Mistake(
        "output got the discount: nobody had computed these tokens before, so all are output",
        but(classes=lambda prefix, questions, output, fresh, cached, written: (fresh, cached, output)),
    ),
    Mistake(
        "the block was not used: only whole blocks are found again, what is left over is lost",
        but(blocks=lambda tokens, block: tokens),
    ),
    Mistake(
        "blocks were counted, not tokens: each of them has `block` tokens, so multiply",
        but(blocks=lambda tokens, block: tokens // block),
    ),
    Mistake("rounded down once, at the end; each request finds whole blocks of its own", rounded_at_the_end),
    Mistake("the questions were taken for cached: each is another one, and only the prefix is shared", question_too),
    Mistake(
        "what is left of the prefix behind its last full block is read again by each request: it is fresh",
        but(classes=left_over_lost),
    ),
    Mistake(
        "one token of each prompt is always read, but that is a token of the question: all of the prefix can be found",
        but(blocks=lambda tokens, block: (tokens - 1) // block * block),
    ),
    Mistake(
        "one token of each prompt is always read, but that is a token of the question: all of the prefix can be found",
        but(blocks=lambda tokens, block: max(tokens // block * block - 1, 0)),
    ),
    Mistake(
        "the first request reads the prefix, too: fresh are all tokens of the prompts that were not cached",
        but(classes=lambda prefix, questions, output, fresh, cached, written: (sum(questions), cached, written)),
    ),
    Mistake("fresh is the prompt without what was cached", but(classes=lambda p, q, o, f, c, w: (f + c, c, w))),
    Mistake("the order is fresh, cached, output", but(classes=lambda p, q, o, f, c, w: (c, f, w))),
    Mistake(
        "nothing was found in the cache: from the second request on the prefix is there", but(hits=lambda questions: 0)
    ),
    Mistake(
        "one hit was counted; every request after the first is one",
        but(hits=lambda questions: min(1, len(questions) - 1)),
    ),
]


@task("07d", "bill on six lists of requests, in blocks of 1 and of 16")
def task_07d(function):
    """`function(prefix, questions, output, block)` -> (fresh, cached, output), tokens of all requests together."""
    compare(function, truth, [billing(*given) for given in BILLS], BILL_MISTAKES)
    counts = [truth(*given)[:2] for what, given in BILLS if given[1] == TWENTY]
    said = [f"{fresh:,} fresh and {cached:,} cached" for fresh, cached in counts]
    return {"blocks of 1": said[0], "blocks of 16": said[1]}
