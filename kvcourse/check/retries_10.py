"""Task 10a: once more, offloaded, when memory runs out."""

import torch

from ..containers import DynamicCache
from ..models.tiny import tiny_config
from ..offload import active, emulated_device
from .reserved import reserved
from .runner import Stopped, run
from .task import Case, Mistake, compare, task
from .words import Phrase, words

LAYERS, HEADS, HEAD_DIM, VOCABULARY = 5, 2, 4, 50
MOST_ATTEMPTS = 4


class SmallModel:
    """Five layers, a config and a `generate`: what an answer needs of a model, and quick.

    Keeps a note of each call of `generate`: the cache it was given, and the bytes in use on the device at that moment.
    `fault`: the exception that each call raises, as (type, words).
    """

    def __init__(self, fault=None):
        self.config = tiny_config()
        self.config.num_hidden_layers, self.config.head_dim = LAYERS, HEAD_DIM
        self.fault, self.calls = fault, []
        self._table = torch.sin(torch.arange(VOCABULARY * HEADS * HEAD_DIM) * 1.7).view(VOCABULARY, -1)

    @torch.no_grad()
    def generate(self, input_ids, cache=None, max_new_tokens=20):
        """The greedy continuation, (1, tokens + max_new_tokens). A cache that holds tokens is taken as their cache."""
        self.calls.append((_described(cache), active[-1].used))
        if len(self.calls) > MOST_ATTEMPTS:  # somebody tries for ever
            return input_ids
        if self.fault is not None:
            kind, words_of_it = self.fault
            raise kind(words_of_it)
        if cache is None:
            cache = DynamicCache(config=self.config)
        text, held = input_ids, cache.get_seq_length()
        fed = input_ids[:, held:] if held < input_ids.shape[1] else input_ids[:, -1:]
        for _ in range(max_new_tokens):
            fed = self._scores(fed, cache).argmax(-1, keepdim=True)
            text = torch.cat([text, fed], dim=1)
        return text

    def _scores(self, ids, cache):
        x = self._table[ids[0]].view(1, ids.shape[1], HEADS, HEAD_DIM).transpose(1, 2)
        for layer in range(LAYERS):
            keys, values = cache.update(torch.tanh(x * (layer + 1)), x.roll(layer + 1, -1), layer)
            q_len, kv_len = x.shape[2], keys.shape[2]
            hidden = torch.ones(q_len, kv_len).tril(kv_len - q_len) == 0
            weights = (x @ keys.transpose(-1, -2)).masked_fill(hidden, float("-inf")).softmax(-1)
            x = torch.tanh(x + weights @ values)
        return x[:, :, -1].flatten(1) @ self._table.T


def _described(cache):
    if cache is None:
        return Phrase("none was given, so it knows no budget")
    if not hasattr(cache, "offloading"):
        return Phrase(words(cache))
    held = max((layer.get_seq_length() for layer in cache.layers), default=0)
    where = "offloaded" if cache.offloading else "resident"
    return Phrase(f"{where}, {'empty' if held == 0 else 'with tokens in it'}")


def asking(what, memory, fault=None, tokens=6, new=6):
    """A case: one answer on a device with so much memory; what each attempt was given, and what came out."""
    played = {}  # what our own answers do, the reference and the mistakes: they are played often

    def play(answer, seen):
        if answer not in OURS:
            return look(answer, seen)
        if answer not in played:
            played[answer] = {}
            look(answer, played[answer])
        seen.update(played[answer])
        return None

    def look(answer, seen):
        model, ids = SmallModel(fault), (torch.arange(tokens)[None] * 7 + tokens) % VOCABULARY
        stopped = None
        with emulated_device(memory, 1e9, latency=0):
            try:
                text = run(answer, answer, model, ids, max_new_tokens=new)
            except Stopped as stop:
                stopped = stop
        seen["attempts"] = len(model.calls) if stopped is None or stopped.kind == "error" else 0
        for number, (cache, used) in enumerate(model.calls, 1):
            seen[f"cache of attempt {number}"] = cache
            seen[f"bytes in use on the device when attempt {number} begins"] = used
        if stopped is None:
            seen["what comes out"] = text.tolist() if isinstance(text, torch.Tensor) else text
            return
        name = stopped.what.split(":")[0]
        if stopped.kind != "error" or not model.calls or name not in ("OutOfMemoryError", "ValueError", "RuntimeError"):
            seen.pop("attempts")
            raise stopped
        seen["what comes out"] = Phrase(f"{name}, as it was raised")

    return Case(what, play)


ASKING = [
    asking("a device with room for everything", 10**6),
    asking("a device with 3,000 bytes, too few for all layers at once", 3_000),
    asking("a device with 5,000 bytes, a longer text", 5_000, tokens=12, new=8),
    asking('generate raises ValueError("a bad setting")', 10**6, (ValueError, "a bad setting")),
    asking('generate raises RuntimeError("the device is lost")', 10**6, (RuntimeError, "the device is lost")),
    asking("a device with 300 bytes, too few for any cache", 300),
]


def anyhow(model, ids, **options):
    """The right answer."""
    try:
        return model.generate(ids, cache=DynamicCache(config=model.config), **options)
    except torch.OutOfMemoryError:
        pass
    return model.generate(ids, cache=DynamicCache(config=model.config, offloading=True), **options)


def catching(kind):
    """Catches errors of another kind."""

    def answer(model, ids, **options):
        try:
            return model.generate(ids, cache=DynamicCache(config=model.config), **options)
        except kind:
            pass
        return model.generate(ids, cache=DynamicCache(config=model.config, offloading=True), **options)

    return answer


def inside(model, ids, **options):
    try:
        return model.generate(ids, cache=DynamicCache(config=model.config), **options)
    except torch.OutOfMemoryError:
        return model.generate(ids, cache=DynamicCache(config=model.config, offloading=True), **options)


def inside_of_all(model, ids, **options):
    try:
        return model.generate(ids, cache=DynamicCache(config=model.config), **options)
    except Exception:
        return model.generate(ids, cache=DynamicCache(config=model.config, offloading=True), **options)


def same_cache(model, ids, **options):
    cache = DynamicCache(config=model.config)
    try:
        return model.generate(ids, cache=cache, **options)
    except torch.OutOfMemoryError:
        pass
    return model.generate(ids, cache=cache, **options)


def resident_again(model, ids, **options):
    try:
        return model.generate(ids, cache=DynamicCache(config=model.config), **options)
    except torch.OutOfMemoryError:
        pass
    return model.generate(ids, cache=DynamicCache(config=model.config), **options)


def one_attempt(offloading):
    return lambda model, ids, **options: model.generate(
        ids, cache=DynamicCache(config=model.config, offloading=offloading), **options
    )


def for_ever(model, ids, **options):
    offloading = False
    while True:
        try:
            return model.generate(ids, cache=DynamicCache(config=model.config, offloading=offloading), **options)
        except torch.OutOfMemoryError:
            offloading = True


def gives_up(model, ids, **options):
    try:
        return model.generate(ids, cache=DynamicCache(config=model.config), **options)
    except torch.OutOfMemoryError:
        return None


def no_options(model, ids, **options):
    try:
        return model.generate(ids, cache=DynamicCache(config=model.config), **options)
    except torch.OutOfMemoryError:
        pass
    return model.generate(ids, cache=DynamicCache(config=model.config, offloading=True))


def no_cache(model, ids, **options):
    try:
        return model.generate(ids, **options)
    except torch.OutOfMemoryError:
        pass
    return model.generate(ids, cache=DynamicCache(config=model.config, offloading=True), **options)


EVERYTHING = "errors of another kind are retried, too: a bad setting is as bad the second time. Catch only {}"
EVERYTHING = EVERYTHING.format("torch.OutOfMemoryError")
ALIVE = (
    "the first cache still lies on the device when the second attempt begins. Inside `except` the error is alive, and "
    "holds every tensor of the first attempt; so does a variable that names the first cache. Retry after the block"
)
ASKING_MISTAKES = [
    Mistake(EVERYTHING, catching(Exception)),
    Mistake(
        "errors of another kind are retried, too: OutOfMemoryError is a kind of RuntimeError, but not the only one. "
        "Catch torch.OutOfMemoryError",
        catching(RuntimeError),
    ),
    Mistake(ALIVE, inside),
    Mistake(ALIVE, inside_of_all),
    Mistake(
        "the second attempt got the cache of the first one, half filled: some layers have a token that others lack. "
        "Give it a new one",
        same_cache,
    ),
    Mistake("the second attempt is not offloaded, so it ends as the first one did: offloading=True", resident_again),
    Mistake("there is no second attempt: catch torch.OutOfMemoryError", one_attempt(False)),
    Mistake("offloaded from the start: where memory is enough, that costs time for nothing", one_attempt(True)),
    Mistake("it tries again and again; when the second attempt fails, its error has to pass", for_ever),
    Mistake("the error was caught and nothing was done: try again, offloaded", gives_up),
    Mistake("the options did not reach the second attempt: **options, as in the first", no_options),
    Mistake("the first attempt got no cache of ours: make one, DynamicCache(config=model.config)", no_cache),
]


OURS = {anyhow, *(mistake.answer for mistake in ASKING_MISTAKES)}


@task(
    "10a", "generate_anyhow: attempts, their caches, bytes in use, and the text, with much memory, little, too little"
)
def task_10a(function):
    """`function(model, ids, **options)`: what `model.generate` returns, with an offloaded cache if need be."""
    with reserved(resilient_generate="resilient"):
        compare(function, anyhow, ASKING, ASKING_MISTAKES)
    return {
        "memory": "enough: one attempt; little: a second one, offloaded, from an empty device, and the same text",
        "errors": "all others pass at once, and so does a second lack of memory",
    }
