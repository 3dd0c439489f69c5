"""The right chat for task 06b, and the wrong ones that people write."""

import torch

from ..containers import DynamicCache
from .task import Mistake


class Talker:
    """The right answer, with the lines that go wrong as methods."""

    def __init__(self, model, end):
        self.model, self.end = model, end
        self.cache = DynamicCache(config=model.config)
        self.text = torch.zeros(1, 0, dtype=torch.long)

    def say(self, question, most):
        self.text, answer = torch.cat([self.text, question], dim=1), []
        fed = self.first(question)
        while len(answer) < most and self.end not in answer:
            fed = self.forward(fed, not answer)[:, -1:].argmax(-1)
            answer.append(int(fed))
        self.remember(answer)
        return self.returned(question, answer)

    def first(self, question):
        return self.text[:, self.cache.get_seq_length() :]

    def forward(self, fed, first):
        return self.model(fed, cache=self.cache).logits

    def remember(self, answer):
        self.text = torch.cat([self.text, torch.tensor([answer])], dim=1)

    def returned(self, question, answer):
        return answer


def but(**methods):
    """A class like the right one, with other methods."""
    return type("Chat", (Talker,), methods)


def anew(self, question):
    self.cache = DynamicCache(config=self.model.config)
    return self.text


def question_to_an_empty_cache(self, question):
    self.cache = DynamicCache(config=self.model.config)
    return question


def masked(always):
    def forward(self, fed, first):
        mask = torch.ones_like(fed) if first or always else None
        return self.model(fed, attention_mask=mask, cache=self.cache).logits

    return forward


def placed(always):
    def forward(self, fed, first):
        places = torch.arange(fed.shape[1])[None] if first or always else None
        return self.model(fed, position_ids=places, cache=self.cache).logits

    return forward


class NoCache(Talker):
    def forward(self, fed, first):
        self.fed = fed if first else torch.cat([self.fed, fed], dim=1)
        return self.model(self.fed, use_cache=False).logits


class TooLate(Talker):
    def say(self, question, most):
        end, self.end = self.end, None
        answer = super().say(question, most)
        self.end = end
        return answer


def fed_whole_each_time(self, question, most):
    """The whole text at every token, to one cache."""
    self.text, answer = torch.cat([self.text, question], dim=1), []
    while len(answer) < most and self.end not in answer:
        token = self.model(self.text, cache=self.cache).logits[:, -1:].argmax(-1)
        self.text = torch.cat([self.text, token], dim=1)
        answer.append(int(token))
    return answer


def guesses(whole, kept):
    """A guess for every token that was fed. `whole`: all of them are fed next; `kept`: all go into the text."""

    def say(self, question, most):
        self.text, answer = torch.cat([self.text, question], dim=1), []
        fed = self.first(question)
        while len(answer) < most and self.end not in answer:
            fed = self.model(fed, cache=self.cache).logits.argmax(-1)
            answer.append(int(fed[0, -1]) if whole else fed.item())
            self.text = torch.cat([self.text, fed if kept else fed[:, -1:]], dim=1)
        return answer

    return say


def without_the_end(self, answer):
    Talker.remember(self, [token for token in answer if token != self.end])


def asked_twice(self, question, most):
    self.text = torch.cat([self.text, question], dim=1)
    return Talker.say(self, question, most)


def another_model(self, fed, first):
    """The error of a model with more layers than the cache was made for."""
    self.cache.update(torch.zeros(1, 1, 1, 2), torch.zeros(1, 1, 1, 2), len(self.cache.layers))


def without_axes(self, fed, first):
    return torch.cat([self.text, torch.tensor(0)], dim=1)


def with_one_axis(self, fed, first):
    return torch.cat([self.text, torch.tensor([0])], dim=1)


def as_int(self, fed, first):
    return int(self.model(fed, cache=self.cache).logits.argmax(-1))


def one_number(self, fed, first):
    return self.model(torch.tensor(0), cache=self.cache)


AXES = "a token goes into the text, and into the model, with its axes, (1, 1): logits[:, -1:].argmax(-1) keeps them"
EVERY = (
    "the model guesses a next token for every token that was fed; what comes after the text is the guess of the last "
    "one: logits[:, -1:].argmax(-1)"
)
MASK = "the mask covers the new tokens alone; one position for each token, held and new, or leave it away"
PLACES = "positions began at 0 again in each turn; they go on where the cache ends, so leave them away"
LOST = (
    "the last token of the answer before was never fed: it was written, and nobody asked what comes after it. Feed "
    "self.text from self.cache.get_seq_length() on"
)
TWICE = but(say=asked_twice)
EACH = but(say=fed_whole_each_time)
CHAT_MISTAKES = [
    Mistake(
        "the whole text was fed to a cache that had read most of it; feed only what is new to the cache",
        but(first=lambda self, question: self.text),
    ),
    Mistake("the whole text was fed for every token; the cache has read it, so feed only what is new", EACH),
    Mistake(LOST, but(first=lambda self, question: question)),
    Mistake(MASK, but(forward=masked(always=False))),
    Mistake(MASK, but(forward=masked(always=True))),
    Mistake(PLACES, but(forward=placed(always=False))),
    Mistake(PLACES, but(forward=placed(always=True))),
    Mistake(
        "the answer was not added to self.text, so the next turn does not find it there",
        but(remember=lambda self, answer: None),
    ),
    Mistake(
        "the end token was returned, but it is not in self.text: it is part of the text, and the next turn feeds it",
        but(remember=without_the_end),
    ),
    Mistake(EVERY, but(say=guesses(whole=True, kept=False))),
    Mistake(EVERY, but(say=guesses(whole=True, kept=True))),
    Mistake(EVERY, but(say=guesses(whole=False, kept=False))),
    Mistake(EVERY, but(forward=as_int)),
    Mistake(
        "the cache was made new and got the question alone: the turns before are lost",
        but(first=question_to_an_empty_cache),
    ),
    Mistake("the cache was never used: hand it to the model, cache=self.cache", NoCache),
    Mistake(
        "the end token is missing: it is part of the text, and the next turn reads it",
        but(returned=lambda self, question, answer: [token for token in answer if token != self.end]),
    ),
    Mistake("the answer goes on behind its end token: stop when self.end was written", TooLate),
    Mistake(
        "one token too many: stop as soon as the answer has `most` tokens",
        but(say=lambda self, question, most: Talker.say(self, question, most + 1)),
    ),
    Mistake(
        "one token too few: an answer may have `most` tokens",
        but(say=lambda self, question, most: Talker.say(self, question, most - 1)),
    ),
    Mistake("the question stands in self.text twice: the first line, which is given, has put it there", TWICE),
    Mistake("another model was fed: the cache is made for self.model", but(forward=another_model)),
    Mistake(AXES, but(forward=without_axes)),
    Mistake(AXES, but(forward=one_number)),
    Mistake(AXES, but(forward=with_one_axis)),
    Mistake(
        "the model returns an object; its scores are in .logits",
        but(forward=lambda self, fed, first: self.model(fed, cache=self.cache).argmax(-1)),
    ),
    Mistake(
        "question and answer came back; return the answer alone",
        but(returned=lambda self, question, answer: [*question[0].tolist(), *answer]),
    ),
    Mistake(
        "the whole text came back; return the answer alone",
        but(returned=lambda self, question, answer: self.text[0].tolist()),
    ),
]
