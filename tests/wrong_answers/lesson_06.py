"""Lesson 06: common prefixes, a chat on one cache, its repair, its logs."""

import os

import torch

import kvcourse as kv
from kvcourse.models.tiny import tiny_tokenizer

# 06a


def common(a, b):
    """Right."""
    count = 0
    for x, y in zip(a, b, strict=False):
        if x != y:
            break
        count += 1
    return count


def common_by_index(a, b):
    """Right."""
    i = 0
    while i < len(a) and i < len(b) and a[i] == b[i]:
        i += 1
    return i


def common_by_tensor(a, b):
    """Right."""
    n = min(len(a), len(b))
    return int((torch.tensor(a[:n]) == torch.tensor(b[:n])).long().cumprod(0).sum())


tokenizer = tiny_tokenizer()


def by_text(a, b):
    return len(os.path.commonprefix([tokenizer.decode(a), tokenizer.decode(b)]))


def by_text_and_back(a, b):
    text = os.path.commonprefix([tokenizer.decode(a), tokenizer.decode(b)])
    return len(tokenizer(text).input_ids)


def index_of_the_last(a, b):
    last = 0
    for i, (x, y) in enumerate(zip(a, b, strict=False)):
        if x != y:
            return last
        last = i
    return last


def counts_the_first_that_differs(a, b):
    count = 0
    for x, y in zip(a, b, strict=False):
        count += 1
        if x != y:
            break
    return count


def no_break(a, b):
    count = 0
    for x, y in zip(a, b, strict=False):
        if x == y:
            count += 1
    return count


def no_last_line(a, b):
    for i, (x, y) in enumerate(zip(a, b, strict=False)):
        if x != y:
            return i


def never_checks_the_end(a, b):
    i = 0
    while a[i] == b[i]:
        i += 1
    return i


def zips_strictly(a, b):
    n = 0
    for x, y in zip(a, b, strict=True):
        if x != y:
            break
        n += 1
    return n


def the_ids(a, b):
    return a[: common(a, b)]


# 06b


class Start:
    def __init__(self, model, end):
        self.model, self.end = model, end
        self.cache = kv.DynamicCache(config=model.config)
        self.text = torch.zeros(1, 0, dtype=torch.long)


def chat(say):
    return type("OneCacheChat", (Start,), {"say": say})


def say(self, question, most, fed="new", mask=None, places=None, keep=True, include_end=True):
    """Right, with parameters for what goes wrong."""
    self.text = torch.cat([self.text, question], dim=1)
    held = self.cache.get_seq_length()
    step = {"new": self.text[:, held:], "all": self.text, "question": question}[fed]
    reply = []
    for _ in range(most):
        options = {"attention_mask": mask(step, self.cache)} if mask else {}
        if places:
            options["position_ids"] = torch.arange(step.shape[1]).unsqueeze(0)
        step = self.model(step, cache=self.cache, **options).logits[:, -1].argmax(-1, keepdim=True)
        reply.append(step.item())
        if reply[-1] == self.end:
            break
    if keep:
        self.text = torch.cat([self.text, torch.tensor([reply])], dim=1)
    return reply if include_end else [token for token in reply if token != self.end]


def say_with_a_mask_for_all(self, question, most):
    """Right."""

    def mask(step, cache):
        return torch.ones(1, cache.get_seq_length() + step.shape[1], dtype=torch.long)

    return say(self, question, most, mask=mask)


def say_with_generate(self, question, most):
    self.text = torch.cat([self.text, question], dim=1)
    n = self.text.shape[1]
    options = {"do_sample": False, "eos_token_id": self.end, "pad_token_id": 0, "max_new_tokens": most}
    self.text = self.model.generate(self.text, cache=self.cache, **options)
    return self.text[0, n:].tolist()


def feeds_the_last_at_once(self, question, most):
    """Right: the last token of an answer goes in at the end of its own turn."""
    reply, step = [], question
    while len(reply) < most and self.end not in reply:
        step = self.model(step, cache=self.cache).logits[:, -1:].argmax(-1)
        reply.append(step.item())
    self.model(step, cache=self.cache)
    return reply


def all_again(self, question, most):
    return say(self, question, most, fed="all")


def question_alone(self, question, most):
    return say(self, question, most, fed="question")


def mask_of_the_new(self, question, most):
    return say(self, question, most, mask=lambda step, cache: torch.ones_like(step))


def positions_from_zero(self, question, most):
    return say(self, question, most, places=True)


def forgets_its_answer(self, question, most):
    return say(self, question, most, keep=False)


def hides_the_end(self, question, most):
    return say(self, question, most, include_end=False)


def a_new_cache_each_turn(self, question, most):
    self.cache = kv.DynamicCache(config=self.model.config)
    return say(self, question, most)


def a_new_cache_for_the_question(self, question, most):
    self.cache = kv.DynamicCache(config=self.model.config)
    return say(self, question, most, fed="question")


def no_cache(self, question, most):
    self.text, n = torch.cat([self.text, question], dim=1), 0
    while n < most and not (n and self.text[0, -1] == self.end):
        logits = self.model(self.text, use_cache=False).logits
        self.text, n = torch.cat([self.text, logits[:, -1:].argmax(-1)], dim=1), n + 1
    return self.text[0, -n:].tolist()


def never_stops_early(self, question, most):
    self.text, answer = torch.cat([self.text, question], dim=1), []
    for _ in range(most):
        logits = self.model(self.text[:, self.cache.get_seq_length() :], cache=self.cache).logits
        answer.append(logits[0, -1].argmax().item())
        self.text = torch.cat([self.text, torch.tensor([answer[-1:]])], dim=1)
    return answer


def say_with_greedy(self, question, most):
    text = torch.cat([self.text, question], dim=1)
    self.text = kv.greedy(self.model, text, most, self.cache, self.end)
    return self.text[0, text.shape[1] :].tolist()


def breaks_before_the_text(self, question, most):
    self.text, answer = torch.cat([self.text, question], dim=1), []
    for _ in range(most):
        logits = self.model(self.text[:, self.cache.get_seq_length() :], cache=self.cache).logits
        token = logits[:, -1:].argmax(-1)
        answer.append(token.item())
        if token == self.end:
            break
        self.text = torch.cat([self.text, token], dim=1)
    return answer


def feeds_every_guess(self, question, most, number=lambda token: token[0, -1].item()):
    self.text, answer = torch.cat([self.text, question], dim=1), []
    fed = self.text[:, self.cache.get_seq_length() :]
    for _ in range(most):
        fed = self.model(fed, cache=self.cache).logits.argmax(-1)
        answer.append(number(fed))
        if answer[-1] == self.end:
            break
    self.text = torch.cat([self.text, torch.tensor([answer])], dim=1)
    return answer


def takes_the_item_of_every_guess(self, question, most):
    return feeds_every_guess(self, question, most, number=lambda token: token.item())


def makes_every_guess_an_int(self, question, most):
    return feeds_every_guess(self, question, most, number=int)


def returns_all(self, question, most):
    say(self, question, most)
    return self.text[0].tolist()


def asks_the_package(self, question, most):
    start = kv.continue_from(self.cache, self.text, torch.cat([self.text, question], dim=1))
    return start.feed


def returning(form):
    def say_it(self, question, most):
        return form(say(self, question, most))

    return say_it


def keeps_it_for_itself(self, question, most):
    self.answer = say(self, question, most)


def writes(feed=lambda self: self.text[:, self.cache.get_seq_length() :], model=None, more=0, times=1, number=None):
    """A loop that puts each token behind self.text at once."""

    def say_it(self, question, most):
        self.text, answer = torch.cat([self.text, *[question] * times], dim=1), []
        while len(answer) < most + more:
            logits = (model or self.model)(feed(self), cache=self.cache).logits
            token = number(logits) if number else logits[:, -1:].argmax(-1)
            self.text = torch.cat([self.text, token], dim=1)
            answer.append(token.item())
            if token == self.end:
                break
        return answer

    return say_it


def appends_tensors(self, question, most):
    self.text, answer = torch.cat([self.text, question], dim=1), []
    while len(answer) < most and self.end not in answer:
        fed = self.model(self.text[:, self.cache.get_seq_length() :], cache=self.cache).logits[:, -1:].argmax(-1)
        self.text = torch.cat([self.text, fed], dim=1)
        answer.append(fed)
    return answer


class DeeperModel(torch.nn.Module):
    """Like the model of the notebook beside the small one of the check: more layers than the cache has."""

    def forward(self, fed, cache):
        for layer in range(3):
            cache.update(torch.zeros(1, 3, 1, 8), torch.zeros(1, 3, 1, 8), layer)


def forgets_the_logits(self, question, most):
    return [self.model(question, cache=self.cache).argmax(-1)[0, -1].item()]


# 06c


def repair(cache, held, new):
    """Right."""
    length = cache.get_seq_length()
    stays = min(common(held[:length], new), len(new) - 1)
    cache.crop(stays - length)
    return new[stays:]


def repair_as_tensor(cache, held, new):
    """Right."""
    stays = min(kv.common_prefix(held, new), len(new) - 1)
    if stays < cache.get_seq_length():
        cache.crop(stays - cache.get_seq_length())
    return torch.tensor([new[cache.get_seq_length() :]])


def crops_the_end(cache, held, new):
    dropped = [token for token in held if token not in new]
    cache.crop(-len(dropped))
    return new[cache.get_seq_length() :]


def cuts_the_middle(cache, held, new):
    start = common(held, new)
    dropped = len([token for token in held if token not in new])
    tails = [[part[:, :, start + dropped :].clone() for part in (layer.keys, layer.values)] for layer in cache.layers]
    cache.crop(start - cache.get_seq_length())
    for index, (keys, values) in enumerate(tails):
        cache.update(keys, values, index)
    return new[cache.get_seq_length() :]


def does_nothing(cache, held, new):
    return new[cache.get_seq_length() :]


def starts_anew(cache, held, new):
    cache.crop(-cache.get_seq_length())
    return new


def feeds_all(cache, held, new):
    repair(cache, held, new)
    return new


def forgets_the_last_token(cache, held, new):
    stays = min(common(held, new), len(new) - 1)
    cache.crop(stays - cache.get_seq_length())
    return new[stays:]


def counts_from_the_text(cache, held, new):
    stays = min(common(held, new), len(new) - 1)
    cache.crop(-(len(held) - stays))
    return new[stays:]


def may_feed_nothing(cache, held, new):
    stays = min(common(held, new), cache.get_seq_length())
    cache.crop(stays - cache.get_seq_length())
    return new[stays:]


def crops_by_what_stays(cache, held, new):
    stays = common(held, new)
    cache.crop(-stays)
    return new[stays:]


def feeds_what_was_held(cache, held, new):
    length = cache.get_seq_length()
    stays = min(common(held, new), length, len(new) - 1)
    cache.crop(stays - length)
    return held[stays:]


def crops_with_the_wrong_sign(cache, held, new):
    stays = min(common(held, new), cache.get_seq_length(), len(new) - 1)
    cache.crop(stays)
    return new[stays:]


def crops_and_prints(cache, held, new):
    print(len(repair(cache, held, new)))


def forgets_to_crop(cache, held, new):
    return new[common(held, new) :]


def lets_the_package(cache, held, new):
    return kv.continue_from(cache, held, new).feed[0].tolist()


# 06d

CAUSES = {"A": ("history fed twice", 3), "B": ("last token never fed", 3), "C": ("template changed the history", 3)}


WRONG = {
    "06a": [
        (by_text, "text was compared"),
        (by_text_and_back, "text was compared"),
        (counts_the_first_that_differs, "one too many"),
        (index_of_the_last, "one too few"),
        (lambda a, b: min(len(a), len(b)), "the length of the shorter one"),
        (no_break, "stop at it"),
        (lambda a, b: len(set(a) & set(b)), "the order counts"),
        (no_last_line, "a loop that runs to its end"),
        (lambda a, b: None, "is the `return` missing"),
        (never_checks_the_end, "one text can end before they part"),
        (the_ids, "return how many they are"),
        (zips_strictly, "without strict=True"),
        (lambda a, b: kv.common_prefix(a, b), "does what this task builds"),
    ],
    "06b": [
        (chat(all_again), "feed only what is new to the cache"),
        (chat(question_alone), "the last token of the answer before was never fed"),
        (chat(mask_of_the_new), "the mask covers the new tokens alone"),
        (chat(positions_from_zero), "positions began at 0 again"),
        (chat(forgets_its_answer), "the answer was not added to self.text"),
        (chat(hides_the_end), "the end token is missing"),
        (chat(a_new_cache_each_turn), "read more than once"),
        (chat(a_new_cache_for_the_question), "the turns before are lost"),
        (chat(no_cache), "the cache was never used"),
        (chat(never_stops_early), "stop when self.end was written"),
        (chat(say_with_generate), "does what this task builds"),
        (chat(say_with_greedy), "does what this task builds"),
        (chat(breaks_before_the_text), "it is not in self.text"),
        (chat(feeds_every_guess), "the guess of the last one"),
        (chat(takes_the_item_of_every_guess), "the guess of the last one"),
        (chat(makes_every_guess_an_int), "the guess of the last one"),
        (chat(writes(number=lambda logits: logits.argmax(-1))), "the guess of the last one"),
        (chat(writes(number=lambda logits: logits[:, -1].argmax(-1))), "keeps them"),
        (chat(returns_all), "return the answer alone"),
        (chat(keeps_it_for_itself), "`return` missing"),
        (chat(returning(lambda ids: [ids])), "return one list of ids"),
        (chat(returning(lambda ids: [])), "the list that came back is empty"),
        (chat(returning(lambda ids: str(ids))), "return one list of ids"),
        (chat(returning(lambda ids: [torch.tensor(i) for i in ids])), "token.item() makes a number"),
        (chat(appends_tensors), "token.item() makes a number"),
        (chat(writes(lambda self: self.text)), "the whole text was fed for every token"),
        (chat(writes(times=2)), "stands in self.text twice"),
        (chat(writes(more=1)), "one token too many"),
        (chat(writes(more=-1)), "one token too few"),
        (chat(writes(model=DeeperModel())), "another model was fed"),
        (chat(writes(number=lambda logits: logits[0, -1].argmax())), "keeps them"),
        (chat(writes(lambda self: torch.cat([self.text[:, -1:], self.text[:, -1:]], 1))), "fed twice"),
        (chat(forgets_the_logits), "in .logits"),
        (chat(asks_the_package), "does what this task builds"),
    ],
    "06c": [
        (crops_the_end, "it dropped them in the middle"),
        (cuts_the_middle, "taken out of the middle"),
        (does_nothing, "the change was ignored"),
        (starts_anew, "everything was thrown away"),
        (feeds_all, "read twice"),
        (forgets_the_last_token, "one token behind its text"),
        (counts_from_the_text, "one token behind its text"),
        (may_feed_nothing, "nothing is left to feed"),
        (crops_by_what_stays, "the number that stay was given"),
        (forgets_to_crop, "still holds what the text no longer says"),
        (feeds_what_was_held, "these are ids of the old text"),
        (crops_with_the_wrong_sign, "without a minus"),
        (crops_and_prints, "`return` missing"),
        (lets_the_package, "does what this task builds"),
    ],
    "06d": [
        (CAUSES | {"A": ("randomness", 4)}, "draws nothing by lot"),
        (CAUSES | {"B": ("randomness", 5)}, "draws nothing by lot"),
        (CAUSES | {"C": ("weak model", 4)}, "answers all three questions well"),
        (CAUSES | {"B": ("weak model", 6)}, "no model changes how many tokens are fed"),
        (CAUSES | {"C": ("history fed twice", 3)}, "more tokens than the text has"),
        (CAUSES | {"B": ("mask too short", 3)}, "no mask was handed over"),
        (CAUSES | {"A": ("history fed twice", 4)}, "it has happened already"),
        (CAUSES | {"C": ("template changed the history", 2)}, "all numbers still fit"),
        (CAUSES | {"A": ("history fed twice", 30)}, "numbered 1 to 6"),
        (CAUSES | {"A": (3, "history fed twice")}, "a cause and"),
        (CAUSES | {"A": "history fed twice"}, "a cause and the number of a line"),
    ],
}
RIGHT = {
    "06a": [common, common_by_index, common_by_tensor],
    "06b": [
        chat(say),
        chat(say_with_a_mask_for_all),
        chat(feeds_the_last_at_once),
        chat(writes()),
        chat(returning(tuple)),
        chat(returning(torch.tensor)),
        chat(returning(lambda ids: torch.tensor([ids]))),
    ],
    "06c": [repair, repair_as_tensor],
    "06d": [CAUSES, {"a": ["History fed twice ", "3"], "b": (" last token never fed", 3.0), "C": CAUSES["C"]}],
}
