"""What an inference server says when it starts: how many blocks, tokens and requests its memory has room for.

The words are those of vLLM's options (`gpu_memory_utilization`, `max_model_len`, `block_size`); the arithmetic is that
of lesson 02. A real engine also measures its activations and subtracts them.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class EngineStart:
    """The memory of a server after its weights are loaded."""

    blocks: int
    size: int  # token slots in a block
    max_model_len: int  # tokens of the longest request

    @property
    def tokens(self):
        """Tokens of all requests together."""
        return self.blocks * self.size

    @property
    def requests(self):
        """How many requests of `max_model_len` tokens fit at once. Shorter ones are more."""
        return self.blocks / -(-self.max_model_len // self.size)

    def __str__(self):
        return (
            f"{self.blocks:,} blocks of {self.size} = {self.tokens:,} tokens; "
            f"{self.requests:.2f} requests of {self.max_model_len:,} tokens at once"
        )


def engine_start(memory, weights, bytes_per_token, max_model_len, gpu_memory_utilization=0.9, size=16):
    """Blocks that fit, rounded down. All sizes in bytes.

    The share is taken of the whole memory, and the weights come out of that share:
    blocks = floor((memory x share - weights) / (size x bytes_per_token)).
    ValueError, the server refuses to start, where the weights or one request of `max_model_len` tokens don't fit.
    """
    if not 0 < gpu_memory_utilization <= 1:
        raise ValueError(f"gpu_memory_utilization={gpu_memory_utilization}: a share of the memory, above 0, at most 1")
    for name, value in (("bytes_per_token", bytes_per_token), ("max_model_len", max_model_len), ("size", size)):
        if value < 1:
            raise ValueError(f"{name}={value}: give 1 or more")
    left = int(memory * gpu_memory_utilization) - weights
    if left <= 0:
        raise ValueError(
            f"the weights take {weights:,} bytes, the server may use {int(memory * gpu_memory_utilization):,}: "
            "raise gpu_memory_utilization, or take a smaller model"
        )
    start = EngineStart(left // (size * bytes_per_token), size, max_model_len)
    if start.requests < 1:
        raise ValueError(
            f"one request of max_model_len={max_model_len:,} tokens needs {-(-max_model_len // size):,} blocks, and "
            f"{start.blocks:,} fit: set max_model_len to {start.tokens:,} or less, or raise gpu_memory_utilization"
        )
    return start
