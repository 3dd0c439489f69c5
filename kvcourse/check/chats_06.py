"""Task 06b: three turns on one cache."""

import functools

import torch

from ..containers import DynamicCache
from ..generate import greedy
from ..measure import count_positions
from .playing import tiny
from .reserved import reserved
from .runner import run
from .task import Case, Mistake, Wrong, compare, task
from .words import words

END = 83  # a token that the tiny model likes to write
QUESTIONS = [(40, 41, 42, 50), (60, 33, 71), (101, 55, 77, 23, 12)]
MOST = 9


@functools.cache
def model():
    return tiny()


def make_chat(answer):
    if not isinstance(answer, type) or not callable(getattr(answer, "say", None)):
        came = f"the class {answer.__name__} without one" if isinstance(answer, type) else words(answer)
        raise Wrong(expected="a class with a method `say(self, question, most)`", came=came)
    return run(answer, answer, model(), END)


def talking(what, questions, most=MOST):
    """A case: the questions one after another, to one chat."""

    def play(answer, seen):
        chat, text = make_chat(answer), 0
        for turn, question in enumerate(questions, 1):
            reply = run(answer, chat.say, torch.tensor([question]), most)
            reply = reply.reshape(-1).tolist() if isinstance(reply, torch.Tensor) else reply
            text += len(question) + (len(reply) if isinstance(reply, list) else 0)
            held = getattr(getattr(chat, "cache", None), "get_seq_length", lambda: 0)()
            seen[f"turn {turn}: tokens of the text that the cache has not read"] = _unread(text - held)
            seen[f"turn {turn}: the answer"] = reply

    return Case(what, play)


def _unread(count):
    """In words. Whether the last token of an answer is fed at once or with the next question is all the same."""
    if count in (0, 1):
        return "none, or the last one"
    return f"{count} tokens" if count > 0 else f"none, and it has read {-count} tokens too many"


TALKS = [
    talking("one question", QUESTIONS[:1]),
    talking("three turns: questions of 4, 3 and 5 tokens", QUESTIONS),
    talking("three turns, one token in each answer", QUESTIONS, most=1),
]


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
        self.text = torch.cat([self.text, question], dim=1)
        text = greedy(self.model, self.text, most, self.cache)
        answer, self.text = text[0, self.text.shape[1] :].tolist(), text
        return answer


def generate_new(self, question, most):
    """What generate() makes of new ids alone."""
    held = self.cache.get_seq_length()
    mask = torch.ones(1, held + question.shape[1], dtype=torch.long)
    options = {"do_sample": False, "eos_token_id": self.end, "pad_token_id": 0, "max_new_tokens": most}
    text = self.model.generate(question, attention_mask=mask, cache=self.cache, **options)
    return text[0, question.shape[1] :].tolist()


MASK = "the mask covers the new tokens alone; one position for each token, held and new, or leave it away"
PLACES = "positions began at 0 again in each turn; they go on where the cache ends, so leave them away"
LOST = (
    "the last token of the answer before was never fed: it was written, and nobody asked what comes after it. Feed "
    "self.text from self.cache.get_seq_length() on"
)
CHAT_MISTAKES = [
    Mistake(
        "the whole text was fed to a cache that had read most of it; feed only what is new to the cache",
        but(first=lambda self, question: self.text),
    ),
    Mistake(LOST, but(first=lambda self, question: question)),
    Mistake(LOST, but(say=generate_new)),
    Mistake(MASK, but(forward=masked(always=False))),
    Mistake(MASK, but(forward=masked(always=True))),
    Mistake(PLACES, but(forward=placed(always=False))),
    Mistake(PLACES, but(forward=placed(always=True))),
    Mistake(
        "the answer was not added to self.text, so the next turn does not find it there",
        but(remember=lambda self, answer: None),
    ),
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
        "question and answer came back; return the answer alone",
        but(returned=lambda self, question, answer: [*question[0].tolist(), *answer]),
    ),
    Mistake(
        "the whole text came back; return the answer alone",
        but(returned=lambda self, question, answer: self.text[0].tolist()),
    ),
]


@task("06b", "three turns of your chat: its answers, and how far its cache is behind the text")
def task_06b(chat_class):
    """`chat_class(model, end)` with `say(question, most)`: ids (1, tokens) -> the ids of the answer, a list."""
    with torch.no_grad(), reserved(Chat="chat", continue_from="prefix"):
        compare(chat_class, Talker, TALKS, CHAT_MISTAKES)
        read, text = _cost(chat_class)
    anew = sum(text) - len(text)  # the last token of each turn is not fed
    if read > text[-1]:
        raise Wrong(
            tested="the positions that went through the model in three turns",
            expected=f"at most {text[-1]}, each token of the text once",
            came=f"{read}",
            likely="the answers are right, and the text was read from the start in every turn; keep self.cache, and "
            "feed it what is new",
        )
    return {
        "answers": "as without a cache, in all turns",
        "cost": f"{read} positions for a text of {text[-1]} tokens; each turn anew would have been {anew}",
    }


def _cost(answer):
    """(positions read in three turns, length of the text after each turn)."""
    chat, lengths = make_chat(answer), [0]
    with count_positions(model()) as counted:
        for question in QUESTIONS:
            reply = run(answer, chat.say, torch.tensor([question]), MOST)
            lengths.append(lengths[-1] + len(question) + len(reply))
    return sum(counted), lengths[1:]
