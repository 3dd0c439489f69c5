"""What a provider's bill calls cached tokens: leading blocks of a prompt that an earlier prompt began with as well."""

from dataclasses import dataclass

from .prefix import as_ids, common_prefix


@dataclass(frozen=True)
class Prices:
    """Prices of a million tokens, in any currency. Look up today's; none is written here."""

    fresh: float  # of a prompt, read for the first time
    cached: float  # of a prompt, found in the cache
    output: float


@dataclass(frozen=True)
class Usage:
    """Tokens of one request, or of several added up, in the three classes of a bill."""

    fresh: int = 0
    cached: int = 0
    output: int = 0

    def __add__(self, other):
        return Usage(self.fresh + other.fresh, self.cached + other.cached, self.output + other.output)

    def cost(self, prices):
        """The bill, in the currency of the prices. Output never gets the discount: nobody computed it before."""
        fresh, cached, output = self.fresh * prices.fresh, self.cached * prices.cached, self.output * prices.output
        return (fresh + cached + output) / 1_000_000


def whole_blocks(tokens, block=16):
    """Of so many leading tokens, those in blocks that are full: 37 tokens in blocks of 16 are 32."""
    if tokens < 0 or block < 1:
        raise ValueError(f"tokens are 0 or more and a block is 1 or more; got {tokens} tokens, blocks of {block}")
    return tokens // block * block


def usage(requests, block=16):
    """One `Usage` a request, in order: what of each prompt was found in the cache.

    `requests`: pairs (token ids of the whole prompt, number of output tokens). Each prompt is compared with all that
    came before, and none of those is ever evicted. Only whole blocks of `block` tokens are found again, and at least
    one token of a prompt is always computed: its logits are the first word of the answer.
    """
    seen, result = [], []
    for prompt, output in requests:
        alike = max((common_prefix(prompt, earlier) for earlier in seen), default=0)
        tokens = as_ids(prompt).shape[1]
        cached = whole_blocks(max(min(alike, tokens - 1), 0), block)
        result.append(Usage(tokens - cached, cached, output))
        seen.append(prompt)
    return result
