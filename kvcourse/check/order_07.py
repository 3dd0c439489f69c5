"""Task 07c: in which order the parts of a prompt serve most requests again."""

from itertools import accumulate, permutations

from .ids_06 import shared
from .task import Unfinished, Wrong, task
from .words import same, words


class Table(dict):
    """The parts as a table to read."""

    def __repr__(self):
        lines = ["part       tokens   version in requests 1 to 5"]
        lines += [f"{part:10} {tokens:6}   {' '.join(versions)}" for part, (tokens, versions) in self.items()]
        return "\n".join(lines)


PARTS = Table(  # tokens of each part, and its version in each of five requests
    clock=(6, "12345"),
    question=(12, "12345"),
    user=(15, "ABAAB"),
    rules=(20, "11111"),
    documents=(120, "XXYXY"),
)


def prompts(order):
    """The ids of the five prompts; each version of each part has ids that occur nowhere else."""
    for request in range(5):
        names = [(part, PARTS[part][1][request], token) for part in order for token in range(PARTS[part][0])]
        yield [number_of(*name) for name in names]


def number_of(part, version, token):
    """A number for a token, the same in every run."""
    return (list(PARTS).index(part) * 128 + ord(version)) * 1000 + token


def reuse(order):
    """Leading tokens of each prompt with which one of the earlier prompts began as well."""
    seen, found = [], []
    for ids in prompts(order):
        found.append(max((shared(ids, earlier) for earlier in seen), default=0))
        seen.append(ids)
    return found


def anywhere(order):
    """What one counts who takes every part that came before, wherever it stands."""
    return sum(
        tokens for tokens, versions in PARTS.values() for request in range(5) if versions[request] in versions[:request]
    )


def with_the_one_before(order):
    """What one counts who compares each prompt with the one before it alone."""
    ids = list(prompts(order))
    return sum(shared(ids[n], ids[n - 1]) for n in range(1, 5))


def every_request(order):
    """What one counts who takes the first request for a hit, too: the part that is the same in all, five times."""
    return sum(reuse(order)) + PARTS["rules"][0]


def best():
    return max(sum(reuse(order)) for order in permutations(PARTS))


@task("07c", "your order of the parts, by the ids of five prompts, and your count of the tokens used again")
def task_07c(order, reused=...):
    """`order`: the five names of PARTS. `reused`: leading tokens found again, all five requests together."""
    if not isinstance(order, (list, tuple)):
        quotes = "each name in quotes of its own, with commas between them" if isinstance(order, str) else None
        raise Wrong(expected=f"a list of the five parts: {', '.join(PARTS)}", came=words(order), likely=quotes)
    if ... in list(order) or not order:
        raise Unfinished(f"five parts in an order: {', '.join(PARTS)}")
    order = [part.strip().casefold() if isinstance(part, str) else part for part in order]
    if sorted(map(str, order)) != sorted(PARTS):
        raise Wrong(expected=f"each of the five parts once: {', '.join(PARTS)}", came=words(list(order)))
    found, most = reuse(order), best()
    if sum(found) < most:
        raise Wrong(
            tested=f"the order {', '.join(order)}",
            expected=f"{most} leading tokens used again in five requests",
            came=f"{sum(found)}: {' + '.join(map(str, found))}",
            likely=_in_the_way(list(order)),
        )
    if reused is ... or reused is None:
        raise Unfinished("the order is one of the best; now the number of tokens used again, all requests together")
    if not same(most, reused):
        raise Wrong(
            tested=f"the number of tokens used again in the order {', '.join(order)}",
            expected="leading tokens that an earlier prompt had as well, in five requests",
            came=words(reused),
            likely=_miscounted(order, reused),
        )
    return {"order": "none uses more again", "used again": f"{' + '.join(map(str, found))} = {most} tokens"}


def _in_the_way(order):
    """The part that stands too far in front."""
    last = max(order.index(part) for part in ("rules", "documents", "user"))
    for part in ("clock", "question"):
        if order.index(part) < last:
            return f"the {part} is another one in each request, so nothing behind it is ever found again: move it back"
    if order[0] != "rules":
        return f"the rules are the same in every request; behind the {order[0]} they are read again when that changes"
    return (
        "the user's text stands before the documents: each time the user changes, the 120 tokens of documents behind "
        "it are read again"
    )


def _miscounted(order, reused):
    if isinstance(reused, (list, tuple, str)):
        return (
            "one number: the sum over the five requests" if not isinstance(reused, str) else "a number, without quotes"
        )
    tokens = sum(number for number, _ in PARTS.values())
    if reused == 5 * tokens - sum(reuse(order)):
        return "those are the tokens that were read; asked for are those that were used again"
    if reused == tokens + sum(reuse(order)):
        return "the first request finds nothing: nobody has read anything before it"
    if isinstance(reused, float) and 0 < reused <= 1:
        return "a share; a number of tokens was asked for"
    if reused == anywhere(order):
        return "matches in the middle were counted too: behind the first difference nothing can be used"
    if reused == with_the_one_before(order):
        return "compared with the prompt before alone; any earlier prompt serves, as long as it is kept"
    if reused == every_request(order):
        return "the first request finds nothing: nobody has read anything before it"
    if reused == 5 * tokens:
        return "those are all tokens of all prompts; asked for are those that an earlier prompt had at its beginning"
    ask = "which earlier prompt begins with most of the same parts?"
    request = _off(list(order), reused)
    return f"look at request {request} again: {ask}" if request else f"go through the requests one by one: {ask}"


def _off(order, reused):
    """The request that was miscounted, if all others were counted right; None where it is none or not one."""
    found, ends = reuse(order), [0, *accumulate(PARTS[part][0] for part in order)]
    missed = [number for number, right in enumerate(found, 1) if number > 1 and right + reused - sum(found) in ends]
    return missed[-1] if missed else None
