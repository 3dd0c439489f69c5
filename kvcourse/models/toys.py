"""Two toy models: small enough to train on a laptop, and to see whole what their caches hold.

`toy-t5`, an encoder and a decoder, reads a number and writes it in words: "70142" gives "seventy thousand one hundred
forty-two". `toy-mamba`, a state-space model, copies letters: "hsreltpu>" gives "hsreltpu.". This file says what they
are and what they were shown; `train_toy` trains them.
"""

import logging
import random
import string
import zlib
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from .pretrained import pretrained
from .toy_models import mamba, mamba_tokenizer, t5, t5_tokenizer

ONES = (
    *("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"),
    *("thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen"),
)
TENS = ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")


@dataclass(frozen=True)
class Toy:
    """A task, a model for it, and how long that one is trained.

    example: (random, length) -> (question, answer), two strings; length is that of the number or of the letters.
    """

    new_model: Callable
    new_tokenizer: Callable
    example: Callable
    lengths: range  # those that training shows
    measured: tuple  # those whose accuracy is measured one by one
    steps: int  # of training, 64 examples each


def in_words(number):
    """English words for a whole number from 0 to 99,999."""
    if number < 20:
        return ONES[number]
    if number < 100:
        return TENS[number // 10 - 2] + (f"-{ONES[number % 10]}" if number % 10 else "")
    size, name = (1000, "thousand") if number >= 1000 else (100, "hundred")
    rest = f" {in_words(number % size)}" if number % size else ""
    return f"{in_words(number // size)} {name}{rest}"


def _number(rng, length):
    number = rng.randrange(10 ** (length - 1) if length > 1 else 0, 10**length)
    return str(number), in_words(number)


def _letters(rng, length):
    letters = "".join(rng.choices(string.ascii_lowercase, k=length))
    return f"{letters}>", letters


def held_out(question):
    """Whether training never shows this question: one in ten of those with three characters or more.

    A checksum decides, so that it is the same ones on every machine. All numbers below 100 are shown: the word "zero"
    appears nowhere else.
    """
    return len(question) >= 3 and zlib.crc32(question.encode()) % 10 == 0


def examples(name, count, length=None, seed=0, unseen=True):
    """A list of `count` (question, answer) for the toy `name`: held-out ones, or with unseen=False those of training.

    `length` of the number or of the letters; None mixes the lengths of training evenly.
    """
    toy, rng, found = TOYS[name], random.Random(seed), []
    while len(found) < count:
        example = toy.example(rng, length or rng.choice(toy.lengths))
        if held_out(example[0]) is unseen:
            found.append(example)
    return found


def answers(model, tokenizer, questions, new_cache=None, batch=250, **options):
    """What a toy model writes for each question, as strings without the end mark.

    new_cache: a function that makes an empty cache, called for each batch; None leaves it to `generate()`.
    options: for `generate()`, for example num_beams=4 or use_cache=False.
    """
    texts = []
    for start in range(0, len(questions), batch):
        inputs = tokenizer(questions[start : start + batch], return_tensors="pt", padding=True).to(model.device)
        cache = {"cache": new_cache()} if new_cache else {}
        tokens = model.generate(**inputs, do_sample=False, **cache, **options)
        if not model.config.is_encoder_decoder:
            tokens = tokens[:, inputs.input_ids.shape[1] :]  # the rest is the question
        texts += tokenizer.batch_decode(tokens, skip_special_tokens=True)
    return texts


def accuracy(model, tokenizer, pairs, characters=False, **options):
    """The share, 0 to 1, of (question, answer) `pairs` that the model answers without a mistake. See `answers`.

    With characters=True the share of characters of the answers that it writes in the right place.
    """
    written = answers(model, tokenizer, [question for question, _ in pairs], **options)
    both = [(text, answer) for text, (_, answer) in zip(written, pairs, strict=True)]
    if characters:
        right = sum(a == b for text, answer in both for a, b in zip(text, answer, strict=False))
        return right / sum(len(answer) for _, answer in both)
    return sum(text == answer for text, answer in both) / len(both)


@contextmanager
def count_projections(model):
    """Count positions that a T5 decoder turns into keys: a dict with "self" and "cross", filled while the block runs.

    All layers and rows of a batch add up; there are as many values as keys.
    """
    counts = {"self": 0, "cross": 0}
    names = {"SelfAttention.k": "self", "EncDecAttention.k": "cross"}

    def counter(side):
        def count(module, args, keys):  # keys: (batch, tokens, heads x head_dim)
            counts[side] += keys.shape[0] * keys.shape[1]

        return count

    parts = [(".".join(name.split(".")[-2:]), module) for name, module in model.get_decoder().named_modules()]
    hooks = [part.register_forward_hook(counter(names[name])) for name, part in parts if name in names]
    try:
        yield counts
    finally:
        for hook in hooks:
            hook.remove()


def load_toy(name, window=(None, None), options=None):
    """(model, tokenizer) of the toy `name` as shipped; for the arguments see `pretrained`."""
    no_advice()
    return pretrained(folder(name), window, dict(options or {}, local_files_only=True))


def no_advice():
    """Silence the advice to install faster kernels, which a model of this size has no use for."""
    logging.getLogger("transformers.integrations.hub_kernels").addFilter(_not_about_kernels)


def _not_about_kernels(record):
    return "falling back to its reference" not in str(record.msg)


def folder(name):
    """Where the shipped files of a toy are."""
    return Path(__file__).parent / "toys" / name


TOYS = {
    "toy-t5": Toy(t5, t5_tokenizer, _number, lengths=range(1, 6), measured=(3, 4, 5), steps=2000),
    "toy-mamba": Toy(mamba, mamba_tokenizer, _letters, lengths=range(3, 9), measured=(*range(3, 11), 12), steps=1500),
}
