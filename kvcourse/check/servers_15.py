"""Task 15c: what a server says of its memory when it starts, or that it refuses."""

from contextlib import contextmanager
from dataclasses import dataclass

from .. import engine
from .reserved import Reserved
from .runner import Stopped, run
from .task import Case, Mistake, compare, task
from .words import Phrase, words

GIB = 2**30
RAISED = ("ValueError", "RuntimeError", "Exception", "AssertionError", "MemoryError")  # as people raise them


@dataclass(frozen=True)
class Server:
    """What is known before a server starts; sizes in bytes."""

    what: str
    memory: int
    weights: int
    bytes_per_token: int
    max_model_len: int
    share: float
    size: int

    def arguments(self):
        return self.memory, self.weights, self.bytes_per_token, self.max_model_len, self.share, self.size


# The one to guess: it comes last, so that no other mistake gives its number away.
GUESSED = Server("Llama-3.1-8B, 48 GiB, 0.9 of it, blocks of 16", 48 * GIB, 16_060_522_496, 131_072, 8_192, 0.9, 16)
SERVERS = [
    Server("Llama-3.1-8B, 24 GiB, 0.9 of it, blocks of 16", 24 * GIB, 16_060_522_496, 131_072, 8_192, 0.9, 16),
    Server("Llama-3.1-8B, 80 GiB, 0.85 of it, blocks of 32", 80 * GIB, 16_060_522_496, 131_072, 131_072, 0.85, 32),
    Server("SmolLM2-135M, 1 GiB, all of it, blocks of 16", GIB, 269_030_016, 23_040, 2_048, 1.0, 16),
    Server("Llama-3.1-8B, 24 GiB, requests of 131,072 tokens", 24 * GIB, 16_060_522_496, 131_072, 131_072, 0.9, 16),
    Server("Llama-3.1-8B, 16 GiB, 0.9 of it", 16 * GIB, 16_060_522_496, 131_072, 2_048, 0.9, 16),
    Server("small numbers, a longest request that fits to the last token", 2_000, 1_000, 10, 80, 0.9, 16),
    Server("small numbers, a longest request that needs a part of a block", 2_100, 1_000, 10, 85, 0.9, 16),
    GUESSED,
]


def starting(server):
    """A case: what a function says of this server."""

    def play(answer, seen):
        try:
            with own_engine_silent():
                said = run(answer, answer, *server.arguments())
        except Stopped as stop:
            if stop.what.split(":")[0] not in RAISED:
                raise
            said = Phrase(f"{stop.where}: {stop.what}")
        if isinstance(said, str):
            seen["outcome"] = "refuses" if said.strip().lower() in ("refuses", "refuse", "refused") else said
            return
        if not isinstance(said, (tuple, list)) or len(said) != 2:
            seen["outcome"] = said if said is None else Phrase(f"{words(said)}, and not two numbers")
            return
        seen["outcome"] = "it starts"
        seen["blocks"], seen["tokens"] = said

    return Case(server.what, play, raised)


def raised(label, expected, came):
    """What to say of an answer that raises an error, as the engine does."""
    if isinstance(came, Phrase) and any(f": {kind}" in came for kind in RAISED):
        return 'the engine raises an error when it refuses; this function returns the word "refuses"'


@contextmanager
def own_engine_silent():
    """Inside, the package's own start log says that it is the task."""
    original = engine.EngineStart

    def refuse(*args, **kwargs):
        raise Reserved("engine_start of the package does what this task builds; write it with lines of your own")

    engine.EngineStart = refuse
    try:
        yield
    finally:
        engine.EngineStart = original


def log(
    memory,
    weights,
    bytes_per_token,
    max_model_len,
    share,
    size,
    left=lambda memory, weights, share: int(memory * share) - weights,
    blocks=lambda left, block: left // block,
    fits=lambda blocks, size, longest: blocks * size >= longest and blocks > 0,
    tokens=lambda blocks, size, left, each: blocks * size,
):
    """The right answer by formula, and with other keywords the wrong ones."""
    room = left(memory, weights, share)
    count = blocks(room, size * bytes_per_token)
    if not fits(count, size, max_model_len):
        return "refuses"
    return count, tokens(count, size, room, bytes_per_token)


def but(**lines):
    return lambda *given: log(*given, **lines)


def per_token(memory, weights, bytes_per_token, max_model_len, share, size):
    count = (int(memory * share) - weights) // bytes_per_token
    return (count, count * size) if count >= max_model_len else "refuses"


def parts_count(memory, weights, bytes_per_token, max_model_len, share, size):
    """It refuses when the bytes that are left are too few, as if a block could be used in part."""
    given = memory, weights, bytes_per_token, max_model_len, share, size
    enough = int(memory * share) - weights >= max_model_len * bytes_per_token
    return log(*given, fits=lambda blocks, size, longest: enough)


WHOLE = (
    "blocks are whole: what is left beside them holds no token, so blocks * size tokens are all there are, and a "
    "request that needs a part of a block needs the whole one"
)
MARGIN = "the request has to fit in whole blocks: compare max_model_len with blocks times size"
SERVER_MISTAKES = [
    Mistake("the weights were forgotten: they come out of the share", but(left=lambda m, w, share: int(m * share))),
    Mistake(
        "the share was taken of what the weights leave; it is one of the whole memory, and the weights come out of it",
        but(left=lambda memory, weights, share: int((memory - weights) * share)),
    ),
    Mistake("the share was ignored: a server leaves the rest to others", but(left=lambda m, w, share: m - w)),
    Mistake("rounded up: a part of a block is no block", but(blocks=lambda left, block: -(-left // block))),
    Mistake("blocks are whole numbers: round down, with //", but(blocks=lambda left, block: left / block)),
    Mistake(
        "tokens are blocks times size; what is left over is less than a block and holds none",
        but(tokens=lambda blocks, size, left, each: left // each),
    ),
    Mistake("a block holds `size` tokens: its bytes are size times bytes_per_token", per_token),
    Mistake(
        'it must refuse: one request of max_model_len tokens does not fit. Return "refuses"',
        but(fits=lambda blocks, size, longest: blocks > 0),
    ),
    Mistake(
        'it must refuse: the weights alone are more than the share. Return "refuses"',
        but(fits=lambda blocks, size, longest: not 0 <= blocks * size < longest),
    ),
    Mistake(
        'it must refuse where the longest request, or the weights alone, do not fit: return "refuses" there',
        but(fits=lambda *_: True),
    ),
    Mistake(MARGIN, but(fits=lambda blocks, size, longest: blocks * size > longest)),
    Mistake(MARGIN, but(fits=lambda blocks, size, longest: blocks >= longest)),
    Mistake(WHOLE, parts_count),
    Mistake(WHOLE, but(fits=lambda blocks, size, longest: blocks >= longest // size)),
    Mistake(
        "the order is blocks, tokens", lambda *given: log(*given) if log(*given) == "refuses" else log(*given)[::-1]
    ),
]


@task("15c", "start_log on eight servers, some of which refuse")
def task_15c(function):
    """`function(memory, weights, bytes_per_token, max_model_len, share, size)` -> (blocks, tokens), or "refuses"."""
    compare(function, log, [starting(server) for server in SERVERS], SERVER_MISTAKES, tolerance=1e-9)
    blocks, tokens = log(*GUESSED.arguments())
    return {
        "starts": f"{GUESSED.what}: {blocks:,} blocks, {tokens:,} tokens",
        "your guess": f"{blocks / 3_400:.1f} times 3,400, so more than twice: the weights are paid once",
        "refuses": "where it has to",
    }
