"""A conversation on one cache: each turn feeds only what is new, and says how much that was."""

import copy
from dataclasses import dataclass, replace

import torch

from .containers import DynamicCache
from .prefix import as_ids, continue_from

GREEDY = {"do_sample": False, "max_new_tokens": 40}


@dataclass(frozen=True)
class Turn:
    """One turn: what was answered, and what of the prompt the model had to read."""

    reply: str
    ids: torch.Tensor  # (1, tokens): prompt and reply
    prompt: int  # tokens of the prompt: what an empty cache would have to read
    saved: int  # of these, tokens that the cache still held
    rolled_back: int  # tokens that the cache held and the chat template no longer gives
    note: str = ""  # where the cache could not roll back: what was done instead

    @property
    def fed(self):
        """Tokens of the prompt that went through the model."""
        return self.prompt - self.saved

    def __repr__(self):
        back = f", {self.rolled_back:,} rolled back" if self.rolled_back else ""
        note = f" ({self.note})" if self.note else ""
        return f"prompt of {self.prompt:,}: {self.saved:,} saved, {self.fed:,} fed{back}{note}; reply {self.reply!r}"


class Chat:
    """Turns of user and assistant that share one cache.

    Before each turn the chat template is asked for the whole conversation, and its token ids are compared with those
    that the cache holds. Whatever a template drops, moves or encodes anew is so found, rolled back and read again.
    `messages` is a plain list and may be edited between two turns.

    `cache`: an empty one of any kind; a `DynamicCache` without. `system`: the first message. Other options go to
    `tokenizer.apply_chat_template`, as in `Chat(model, tokenizer, chat_template=...)`.
    """

    def __init__(self, model, tokenizer, cache=None, system=None, **template):
        self.model, self.tokenizer, self.template = model, tokenizer, template
        self.cache = DynamicCache(config=model.config) if cache is None else cache
        self.messages = [] if system is None else [{"role": "system", "content": system}]
        self.held = as_ids([])  # ids of the text that the cache has read
        self.safe = None  # (copy, ids) to start again from, where the cache can't roll back

    def say(self, text, begin="", **options):
        """Add a user's message, let the model answer, return the `Turn`.

        `begin`: words that the answer has to begin with. `options`: for `model.generate`; greedy and 40 new tokens
        without, unless a `generation_config` is among them. An interrupted turn leaves no message behind, and an empty
        cache. ValueError for options that ask for more than one row of token ids.
        """
        if options.get("num_beams", 1) > 1 or options.get("num_return_sequences", 1) > 1:
            raise ValueError(
                "a chat has one row: no beams, no several answers. Use continue_from, then batch_repeat_interleave(n) "
                "on a copy of the cache"
            )
        if options.get("return_dict_in_generate"):
            raise ValueError("a turn needs the token ids alone: leave out return_dict_in_generate, and see Turn.ids")
        settings = options if "generation_config" in options else GREEDY | options
        messages = [*self.messages, {"role": "user", "content": text}]
        prompt = self.prompt_ids(messages, begin)
        try:
            start = continue_from(self.cache, self.held, prompt, self.safe)
            self.cache = start.cache
            inputs = replace(start, saved=self._put_aside(start)).inputs
            made = self.model.generate(**inputs, **settings)
            ids = torch.cat([prompt, made[:, inputs["input_ids"].shape[1] :]], dim=1)
        except BaseException:
            self.forget()
            raise
        self.held = ids[:, :-1]  # nobody has fed the last one
        reply = self.tokenizer.decode(ids[0, prompt.shape[1] :], skip_special_tokens=True)
        self.messages = [*messages, {"role": "assistant", "content": begin + reply}]
        return Turn(reply, ids, prompt.shape[1], start.saved, start.rolled_back, start.note)

    def prompt_ids(self, messages, begin=""):
        """Token ids of a conversation and of what an answer begins with, (1, tokens)."""
        text = self.tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False, **self.template)
        ids = self.tokenizer(text + begin, add_special_tokens=False).input_ids
        return as_ids(ids).to(self.model.device)

    def forget(self):
        """Empty the cache and keep the messages: the next turn reads all of them again."""
        self.cache.reset()
        self.held, self.safe = as_ids([]), None

    @torch.no_grad()
    def _put_aside(self, start):
        """Read the prompt and copy the cache, if it may be unable to go back behind the answer later.

        Returns how many tokens of the prompt the cache holds then."""
        if start.feed.shape[1] == 1 or not (any(self.cache.is_sliding) or not self.cache.is_croppable):
            return start.saved
        self.model(start.feed[:, :-1], cache=self.cache, logits_to_keep=1)
        self.safe = copy.deepcopy(self.cache), start.ids[:, :-1]
        return start.ids.shape[1] - 1
