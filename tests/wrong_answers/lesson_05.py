"""Lesson 05: crop, what a window holds after it, and guessing."""

import torch

import kvcourse as kv


class Base:
    keys = None
    values = None

    def update(self, keys, values):
        if self.keys is None:
            self.keys, self.values = keys.clone(), values.clone()
        else:
            self.keys, self.values = torch.cat([self.keys, keys], 2), torch.cat([self.values, values], 2)
        return self.keys, self.values


def layer(crop):
    return type("CroppableLayer", (Base,), {"crop": crop})


# 05a


def crop(self, n, most=None):
    """Right."""
    if n > 0:
        raise ValueError("how many tokens to remove, as a negative number")
    left = self.keys.shape[2] - min(-n, self.keys.shape[2])
    self.keys = self.keys[:, :, :left].clone()
    self.values = self.values[:, :, :left].clone()


def crop_by_narrow(self, n):
    """Right."""
    length = self.keys.shape[-2]
    if n > 0:
        raise ValueError(n)
    if n == 0:
        return
    if -n >= length:
        self.keys = self.values = None
        return
    self.keys, self.values = self.keys.narrow(2, 0, length + n), self.values.narrow(2, 0, length + n)


def slices_to_n(self, n):
    if n > 0:
        raise ValueError(n)
    self.keys, self.values = self.keys[:, :, :n], self.values[:, :, :n]


def negative_length(self, n):
    if n > 0:
        raise ValueError(n)
    length = self.keys.shape[2] + n
    self.keys, self.values = self.keys[:, :, :length], self.values[:, :, :length]


def accepts_positive(self, n):
    length = self.keys.shape[2] - abs(n)
    length = length if length > 0 else 0
    self.keys, self.values = self.keys[:, :, :length], self.values[:, :, :length]


def asserts(self, n):
    assert n <= 0, "negative, please"
    crop(self, n)


def refuses_too_late(self, n):
    length = max(0, self.keys.shape[2] - abs(n))
    self.keys, self.values = self.keys[:, :, :length], self.values[:, :, :length]
    if n > 0:
        raise ValueError(n)


def refuses_too_many(self, n):
    if n > 0 or -n > self.keys.shape[2]:
        raise ValueError("not so many")
    crop(self, n)


def drops_the_first(self, n):
    if n > 0:
        raise ValueError(n)
    self.keys, self.values = self.keys[:, :, -n:], self.values[:, :, -n:]


def keeps_n(self, n):
    if n > 0:
        raise ValueError(n)
    self.keys, self.values = self.keys[:, :, : abs(n)], self.values[:, :, : abs(n)]


def keys_alone(self, n):
    values = self.values
    crop(self, n)
    self.values = values


def returns_it(self, n):
    if n > 0:
        raise ValueError(n)
    length = max(0, self.keys.shape[2] + n)
    return self.keys[:, :, :length], self.values[:, :, :length]


def along_the_heads(self, n):
    if n > 0:
        raise ValueError(n)
    self.keys, self.values = self.keys[:, :n], self.values[:, :n]


def cut_at_the_length(index):
    def along_another_axis(self, n):
        if n > 0:
            raise ValueError(n)
        left = max(0, self.keys.shape[2] + n)
        part = (*[slice(None)] * index, slice(left))
        self.keys, self.values = self.keys[part], self.values[part]

    return along_another_axis


def along_the_channels(self, n):
    if n > 0:
        raise ValueError(n)
    left = max(0, self.keys.shape[2] + n)
    self.keys, self.values = self.keys[..., :left], self.values[..., :left]


def length_counted_twice(self, n):
    if n > 0:
        raise ValueError(n)
    self.keys = self.keys[:, :, : max(self.keys.shape[2] + n, 0)]
    self.values = self.values[:, :, : max(self.keys.shape[2] + n, 0)]


def refuses_zero(self, n):
    if n >= 0:
        raise ValueError("negative, please")
    crop(self, n)


def refuses_the_wrong_sign(self, n):
    if n < 0:
        raise ValueError("positive, please")
    crop(self, -n)


def prints_a_refusal(self, n):
    if n > 0:
        print("no")
        return
    crop(self, n)


# 05b

TRUE = {"a": ([0, 1], 2), "b": "refused", "c": ([2], 3), "d": ([1, 2, 3], 4)}
TRUE |= {"e": "refused", "f": ([6, 7, 8], 9), "g": ([], 0), "h": ([6, 7, 8], 9)}
FORMS = {"a": [range(2), 2], "b": "Refused", "c": ({2}, 3), "d": (torch.tensor([1, 2, 3]), 4)}
FORMS |= {"e": "it refuses", "f": ((6, 7, 8), torch.tensor(9)), "g": [[], 0], "h": ([6, 7, 8], 9)}
KEEPS_W = TRUE | {"c": ([1, 2], 3), "d": ([0, 1, 2, 3], 4), "f": ([5, 6, 7, 8], 9), "h": ([5, 6, 7, 8], 9)}
HELD = {letter: said if said == "refused" else (said[0], len(said[0])) for letter, said in TRUE.items()}

# 05c


def guess_round(model, cache, text, guess):
    """Right, written with a loop."""
    held = cache.get_seq_length()
    fed = torch.cat([text, guess], dim=-1)[:, held:]
    scores = model(fed, cache=cache).logits[0].argmax(-1).tolist()
    mine = scores[text.shape[1] - held - 1 :]
    accepted = []
    for guessed, own in zip(guess[0].tolist(), mine, strict=False):
        if guessed != own:
            break
        accepted.append(guessed)
    accepted.append(mine[len(accepted)])
    cache.crop(-(guess.shape[1] - (len(accepted) - 1)))
    return torch.cat([text, torch.tensor([accepted])], dim=1)


def wrong_round(compare=lambda own, guess: own[:, :-1] == guess, run=True, bonus=True, crop="wrong", old=False):
    """A round with one thing wrong."""

    def speculate(model, cache, text, guess):
        held = 0 if old else cache.get_seq_length()
        logits = model(torch.cat([text, guess], 1)[:, held:], cache=cache).logits
        own = logits[:, logits.shape[1] - guess.shape[1] - 1 :].argmax(-1)
        same = compare(own, guess)
        n = int(same.long().cumprod(1).sum() if run else same.sum())
        text = torch.cat([text, guess[:, :n]] + [own[:, n : n + 1]] * bonus, 1)
        wrong = guess.shape[1] - n
        cache.crop(
            {"wrong": -wrong, "accepted": -n, "none": 0, "all": n * 0 - guess.shape[1], "more": -wrong - 1}[crop]
        )
        return text

    return speculate


def believes_everything(model, cache, text, guess):
    text = torch.cat([text, guess], dim=1)
    own = model(text[:, cache.get_seq_length() :], cache=cache).logits[:, -1:].argmax(-1)
    return torch.cat([text, own], dim=1)


def takes_the_wrong_guess(model, cache, text, guess):
    held = cache.get_seq_length()
    own = model(torch.cat([text, guess], 1)[:, held:], cache=cache).logits[:, -guess.shape[1] - 1 :].argmax(-1)
    n = 0
    while n < guess.shape[1] and guess[0, n] == own[0, n]:
        n += 1
    cache.crop(n - guess.shape[1])
    return torch.cat([text, guess[:, : n + 1] if n < guess.shape[1] else own], dim=1)


def feeds_the_guess_alone(model, cache, text, guess):
    fed = guess if cache.get_seq_length() else torch.cat([text, guess], 1)
    if not fed.shape[1]:
        fed = text[:, -1:]
    own = model(fed, cache=cache).logits[:, -guess.shape[1] - 1 :].argmax(-1)
    n = int((own[:, : guess.shape[1]][:, -guess.shape[1] :] == guess[:, : own.shape[1]]).cumprod(1).sum())
    text = torch.cat([text, own[:, : n + 1]], 1)
    cache.crop(min(0, text.shape[1] - 1 - cache.get_seq_length()))
    return text


def ignores_the_guess(model, cache, text, guess):
    return kv.greedy(model, text, 1, cache)


def a_forward_for_each(model, cache, text, guess):
    for token in [*guess[0].tolist(), None]:
        text = kv.greedy(model, text, 1, cache)
        if token != text[0, -1]:
            return text


def only_the_new(model, cache, text, guess):
    return guess_round(model, cache, text, guess)[:, text.shape[1] :]


def round_by_hand(places=1, found=None, added="own", crop="text", minus=1, cached=True):
    """A round as hint 3 shows it, with one thing filled in wrongly."""

    def one_round(model, cache, text, guess):
        fed = torch.cat([text, guess], dim=1)
        options = {"cache": cache} if cached else {"use_cache": False}
        own = model(fed[:, cache.get_seq_length() :], **options).logits.argmax(-1)
        own = own[:, -guess.shape[1] - places :]
        right = 0
        while right < guess.shape[1] and (found or own[0, right] == guess[0, right]):
            right += 1
        new = {
            "own": [own[:, : right + 1]],
            "last": [guess[:, :right], own[:, -1:]],
            "one": [own[:, right : right + 1]],
            "guesses": [guess[:, :right]],
        }[added]
        text = torch.cat([text, *new], dim=1)
        if crop == "text":
            cache.crop(text.shape[1] - minus - cache.get_seq_length())
        elif crop == "at most":
            cache.crop(min(0, text.shape[1] - minus - cache.get_seq_length()))
        elif crop == "wrong":
            cache.crop(right - guess.shape[1])
        elif crop == "positive":
            cache.crop(guess.shape[1] - right)
        elif crop == "one too few":
            cache.crop(right - guess.shape[1] + 1 if right < guess.shape[1] else 0)
        return text

    return one_round


def own_from(start, crop="text"):
    """Looks at the model's tokens from `start(text)` on."""

    def one_round(model, cache, text, guess):
        fed = torch.cat([text, guess], dim=1)[:, cache.get_seq_length() :]
        own = model(fed, cache=cache).logits.argmax(-1)[:, start(text) :]
        r = 0
        while r < guess.shape[1] and own[0, r] == guess[0, r]:
            r += 1
        text = torch.cat([text, guess[:, :r], own[:, r : r + 1]], dim=1)
        cache.crop(text.shape[1] - 1 - cache.get_seq_length() if crop == "text" else r - guess.shape[1])
        return text

    return one_round


def loop_without_a_bound(model, cache, text, guess):
    fed = torch.cat([text, guess], dim=1)[:, cache.get_seq_length() :]
    own = model(fed, cache=cache).logits[:, -guess.shape[1] - 1 :].argmax(-1)
    r = 0
    while own[0, r] == guess[0, r]:
        r += 1
    cache.crop(r - guess.shape[1])
    return torch.cat([text, own[:, : r + 1]], dim=1)


def lists_without_a_bound(model, cache, text, guess):
    fed = torch.cat([text, guess], dim=1)[:, cache.get_seq_length() :]
    own = model(fed, cache=cache).logits[0, -guess.shape[1] - 1 :].argmax(-1).tolist()
    r = 0
    while own[r] == guess[0].tolist()[r]:
        r += 1
    cache.crop(r - guess.shape[1])
    return torch.cat([text, torch.tensor([own[: r + 1]])], dim=1)


def one_axis_lost(parts):
    def one_round(model, cache, text, guess):
        fed = torch.cat([text, guess], dim=1)[:, cache.get_seq_length() :]
        own, r = model(fed, cache=cache).logits[:, -guess.shape[1] - 1 :].argmax(-1), 0
        while r < guess.shape[1] and own[0, r] == guess[0, r]:
            r += 1
        text = torch.cat([text, *parts(own, guess, r)], dim=1)
        cache.crop(text.shape[1] - 1 - cache.get_seq_length())
        return text

    return one_round


def joined_without_dim(model, cache, text, guess):
    fed = torch.cat([text, guess])[:, cache.get_seq_length() :]
    return model(fed, cache=cache).logits.argmax(-1)


def a_list(model, cache, text, guess):
    return guess_round(model, cache, text, guess)[0].tolist()


def forgets_the_logits(model, cache, text, guess):
    own = model(torch.cat([text, guess], 1)[:, cache.get_seq_length() :], cache=cache).argmax(-1)
    return torch.cat([text, own[:, -1:]], 1)


def prints_it(model, cache, text, guess):
    print(guess_round(model, cache, text, guess).shape)


WRONG = {
    "05a": [
        (layer(slices_to_n), "`[:-0]` is `[:0]`"),
        (layer(negative_length), "the length went below zero"),
        (layer(accepts_positive), "a positive count has to be refused"),
        (layer(asserts), "the kind of error for a bad value is ValueError"),
        (layer(refuses_too_late), "changed before it refused"),
        (layer(refuses_too_many), "empties the layer; that is no error"),
        (layer(drops_the_first), "the first tokens went"),
        (layer(keeps_n), "as many were kept as were to go"),
        (layer(keys_alone), "only the keys were cropped"),
        (layer(returns_it), "nothing was removed"),
        (layer(along_the_heads), "heads were removed"),
        (layer(cut_at_the_length(0)), "sequences were removed"),
        (layer(cut_at_the_length(1)), "heads were removed"),
        (layer(along_the_channels), "channels were removed"),
        (layer(length_counted_twice), "compute the length once"),
        (layer(refuses_zero), "crop(0) removes none"),
        (layer(refuses_the_wrong_sign), "refuse only n > 0"),
        (layer(prints_a_refusal), "a positive count has to be refused"),
        (Base, "a method `crop(self, n)`"),
    ],
    "05b": [
        (KEEPS_W, "so W - 1 are kept"),
        (HELD, "not how many tokens are held"),
        (TRUE | {"a": "refused", "g": "refused"}, "a crop needs no recording"),
        (TRUE | {"c": "refused", "d": "refused"}, "so it can go back"),
        (TRUE | {"b": ([3, 4], 5)}, "so it refuses"),
        (TRUE | {"b": ([2, 3, 4], 5), "e": ([0, 1, 2], 3)}, "so it refuses"),
        (TRUE | {"e": ([0, 1, 2], 3)}, "the first one has been dropped already"),
        (TRUE | {"c": ([0, 1, 2], 3), "d": ([0, 1, 2, 3], 4)}, "not beyond it"),
        (TRUE | {"f": ([], 0), "h": ([], 0)}, "crop(0) removes no token"),
        (TRUE | {"f": "refused"}, "crop(0) never raises"),
        (TRUE | {"b": "an error"}, "or the word"),
        (TRUE | {"d": ([2, 3], 4)}, "keeps the last W - 1"),
        (TRUE | {"d": ([3], 4)}, "keeps the last W - 1"),
        (TRUE | {"a": ([1, 2], 2)}, "positions count from 0"),
        (TRUE | {"a": (2, [0, 1])}, "a list of positions and a length"),
    ],
    "05c": [
        (wrong_round(crop="accepted"), "the accepted guesses were cropped"),
        (wrong_round(bonus=False), "the model's own token is lost"),
        (wrong_round(run=False), "a guess behind a wrong one was accepted"),
        (believes_everything, "the guesses were trusted"),
        (takes_the_wrong_guess, "the model's token goes in"),
        (wrong_round(crop="none"), "still in the cache"),
        (wrong_round(crop="all"), "also those that hold"),
        (wrong_round(crop="more"), "one token too many was cropped"),
        (wrong_round(compare=lambda own, guess: own[:, 1:] == guess), "compared one place off"),
        (wrong_round(old=True), "feed only what is new"),
        (feeds_the_guess_alone, "the last token of the text was never fed"),
        (ignores_the_guess, "the guesses were thrown away"),
        (a_forward_for_each, "one forward is enough"),
        (only_the_new, "does not begin with the text before"),
        (only_the_new, "return the whole text"),
        (round_by_hand(minus=0), "it is to be one token behind"),
        (round_by_hand(minus=0, crop="at most"), "it is to be one token behind"),
        (round_by_hand(crop="one too few"), "it is to be one token behind"),
        (round_by_hand(crop="positive"), "it takes minus that number"),
        (round_by_hand(places=0), "the places are one late"),
        (round_by_hand(found=True), "the guesses were trusted"),
        (round_by_hand(found=True, crop="wrong"), "the guesses were trusted"),
        (round_by_hand(added="last", crop="wrong"), "taken from the last place"),
        (round_by_hand(added="one", crop="wrong"), "the guesses that hold are missing"),
        (round_by_hand(added="guesses", crop="wrong"), "the model's own token is lost"),
        (round_by_hand(cached=False, crop=None), "hand it to the model, cache=cache"),
        (own_from(lambda text: 0), "in the first round the prompt stands before"),
        (own_from(lambda text: 0, crop="guesses"), "in the first round the prompt stands before"),
        (own_from(lambda text: text.shape[1] - 1), "a place for each token that was fed"),
        (loop_without_a_bound, "stop at guess.shape[1]"),
        (lists_without_a_bound, "stop at guess.shape[1]"),
        (one_axis_lost(lambda own, guess, r: [guess[:, :r], own[:, r]]), "leaves the axis of the tokens out"),
        (one_axis_lost(lambda own, guess, r: [guess[:, :r], own[0, r]]), "leaves the axis of the tokens out"),
        (joined_without_dim, "joined along the tokens"),
        (a_list, "return a tensor of ids"),
        (prints_it, "`return` missing"),
        (forgets_the_logits, "in .logits"),
    ],
}
RIGHT = {
    "05a": [layer(crop), layer(crop_by_narrow)],
    "05b": [TRUE, FORMS],
    "05c": [guess_round, wrong_round(), round_by_hand()],
}
