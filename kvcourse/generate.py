"""A greedy loop that one can read in a minute, with and without a cache."""

import torch


@torch.no_grad()
def stream(model, input_ids, max_new_tokens, cache=None, stop_at=None):
    """Yield the most likely next token, (batch, 1), again and again.

    `input_ids`: (batch, tokens), all of one length. Without a `cache` the whole text goes through the model at every
    step. With one, only the tokens that it has not seen: first the prompt, or what of it is new to a filled cache, then
    one token a step. Stops after `max_new_tokens`, or once every row has produced the token id `stop_at`.
    """
    if cache is not None and cache.get_seq_length() >= input_ids.shape[1]:
        raise ValueError(
            f"the cache has seen {cache.get_seq_length()} tokens and the text has {input_ids.shape[1]}: nothing is "
            "left to feed. Pass the whole text, at least one token longer than the cache, or crop the cache"
        )
    text, done = input_ids, torch.zeros(input_ids.shape[0], 1, dtype=torch.bool, device=input_ids.device)
    for _ in range(max_new_tokens):
        fed = text if cache is None else text[:, cache.get_seq_length() :]
        logits = model(fed, cache=cache, use_cache=cache is not None, logits_to_keep=1).logits
        token = logits[:, -1:].argmax(dim=-1)
        text = torch.cat([text, token], dim=1)
        yield token
        done |= token == (-1 if stop_at is None else stop_at)
        if done.all():
            return


def greedy(model, input_ids, max_new_tokens, cache=None, stop_at=None):
    """The text with its greedy continuation, (batch, tokens + new). See `stream`."""
    return torch.cat([input_ids, *stream(model, input_ids, max_new_tokens, cache, stop_at)], dim=1)
