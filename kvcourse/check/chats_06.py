"""Task 06b: three turns on one cache."""

import functools
from contextlib import contextmanager
from unittest import mock

import torch

from ..measure import count_positions
from .chats_mistakes import CHAT_MISTAKES, Talker
from .playing import tiny
from .reserved import Reserved, reserved
from .runner import run
from .task import Case, Wrong, compare, task
from .words import Phrase, words

END = 83  # a token that the tiny model likes to write
QUESTIONS = [(40, 41, 42, 50), (60, 33, 71), (101, 55, 77, 23, 12)]
MOST = 9
TOO_MANY = "tokens too many"


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
            reply = ids_of(run(answer, chat.say, torch.tensor([question]), most))
            reply = Phrase("an empty list") if reply == [] else reply
            seen[f"what turn {turn} returned"] = ALIST if isinstance(reply, list) else reply
            if not isinstance(reply, list):
                return
            text += len(question) + len(reply)
            held = getattr(getattr(chat, "cache", None), "get_seq_length", lambda: 0)()
            seen[f"turn {turn}: tokens of the text that the cache has not read"] = _unread(_length(chat, text) - held)
            seen[f"turn {turn}: the answer"] = reply

    return Case(what, play, explain)


ALIST = Phrase("a list of ids")
NUMBERS = "a list of ids was asked for; token.item() makes a number of a tensor with one id"


def ids_of(reply):
    """The ids of an answer as a list, given in any form that holds one id after another; else None or what it is."""
    if isinstance(reply, torch.Tensor) and (reply.ndim == 1 or reply.shape[:-1] == (1,)):
        return reply.tolist() if reply.ndim == 1 else reply[0].tolist()
    if not isinstance(reply, (list, tuple)):
        return reply if reply is None else Phrase(words(reply))
    inside = [item for item in reply if not isinstance(item, int)]
    if not inside:
        return list(reply)
    kind = "tensors" if isinstance(inside[0], torch.Tensor) else f"objects of type {type(inside[0]).__name__}"
    return Phrase(f"a {type(reply).__name__} of {kind}")


def explain(label, expected, came):
    if came == "an empty list":
        return "the list that came back is empty: return the ids that were written"
    if label.startswith("what turn") and came is not None:
        return NUMBERS if "tensor" in came else "return one list of ids, that of the answer: [42, 21, ...]"
    return None


def _length(chat, told):
    """How long the chat's own text is; `told`, from questions and answers, where it keeps none."""
    text = getattr(chat, "text", None)
    return text.shape[1] if isinstance(text, torch.Tensor) and text.ndim == 2 and text.shape[1] else told


def _unread(count):
    """In words. Whether the last token of an answer is fed at once or with the next question is all the same."""
    if count in (0, 1):
        return Phrase("none, or the last one")
    return Phrase(f"{count} tokens" if count > 0 else f"none, and it has read {-count} {TOO_MANY}")


@contextmanager
def by_hand():
    """Inside, whatever writes more than one token says that it is the task."""

    def refuse(*args, **kwargs):
        raise Reserved("model.generate does what this task builds; write it with lines of your own")

    own = reserved(Chat="chat", continue_from="prefix", greedy="generate", stream="generate")
    with own, mock.patch.object(type(model()), "generate", refuse):
        yield


TALKS = [
    talking("one question", QUESTIONS[:1]),
    talking("three turns: questions of 4, 3 and 5 tokens", QUESTIONS),
    talking("three turns, one token in each answer", QUESTIONS, most=1),
]


@task("06b", "three turns of your chat: its answers, and how far its cache is behind the text")
def task_06b(chat_class):
    """`chat_class(model, end)` with `say(question, most)`: ids (1, tokens) -> the ids of the answer, a list."""
    with torch.no_grad(), by_hand():
        try:
            compare(chat_class, Talker, TALKS, CHAT_MISTAKES)
        except Wrong as wrong:
            if TOO_MANY in wrong.lines.get("came", "") and "likely" not in wrong.lines:
                raise Wrong(
                    **wrong.lines, likely="something was fed twice: feed only what is new to the cache"
                ) from None
            raise
        read, text = _cost(chat_class)
    anew = sum(text) - len(text)  # the last token of each turn is not fed
    if read > text[-1]:
        raise Wrong(
            tested="the positions that went through the model in three turns",
            expected=f"at most {text[-1]}, each token of the text once",
            came=f"{read}",
            likely="the answers are right, but tokens were read more than once; keep self.cache, feed it what is new",
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
            reply = ids_of(run(answer, chat.say, torch.tensor([question]), MOST))
            lengths.append(lengths[-1] + len(question) + len(reply))
    return sum(counted), lengths[1:]
