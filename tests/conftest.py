"""What every test file shares: one thread, and tiny models with random weights."""

import os
import random

import pytest
import torch


def pytest_configure(config):
    """One seed for a fuzz run, chosen before the workers start, so that all of them have the same."""
    if os.environ.get("KVCOURSE_FUZZ"):
        os.environ.setdefault("KVCOURSE_SEED", str(random.SystemRandom().randrange(2**32)))


def pytest_terminal_summary(terminalreporter):
    if os.environ.get("KVCOURSE_FUZZ"):
        again = f"KVCOURSE_SEED={os.environ['KVCOURSE_SEED']} KVCOURSE_FUZZ={os.environ['KVCOURSE_FUZZ']}"
        terminalreporter.write_line(f"the same sequences again: {again}")


# sizes of a tiny model of any Llama-like kind: two layers, four queries on two keys
SMALL = dict(
    vocab_size=61,
    hidden_size=32,
    intermediate_size=48,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=8,
    pad_token_id=0,
    bos_token_id=1,
    eos_token_id=None,
)


@pytest.fixture(autouse=True)
def as_new():
    """One thread, since tiny steps run many times slower when two fight over a core. And no mode that a lesson's code,
    run inside a test, has left behind."""
    torch.set_num_threads(1)
    torch.set_grad_enabled(True)
    torch.manual_seed(0)


@pytest.fixture(scope="session")
def real():
    """(model, tokenizer): the course's real model, in float32."""
    import kvcourse as kv

    return kv.load()


@pytest.fixture(scope="session")
def llama():
    """A two-layer Llama with random weights: grouped queries, and a head_dim that is not hidden / heads."""
    return tiny_llama()


def tiny_llama(**options):
    from transformers import LlamaConfig, LlamaForCausalLM

    sizes = dict(vocab_size=97, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4)
    sizes |= dict(num_key_value_heads=2, head_dim=16, max_position_embeddings=512, pad_token_id=0, eos_token_id=None)
    torch.manual_seed(1)
    # The usual initialisation (0.02) makes all logits alike; larger weights make every token count.
    return LlamaForCausalLM(LlamaConfig(**sizes, initializer_range=0.5, **options)).eval()


def distinct(batch, heads, tokens, head_dim, start=0):
    """States in which every number is different, so that a wrong index cannot hide."""
    count = batch * heads * tokens * head_dim
    return torch.arange(start, start + count, dtype=torch.float32).view(batch, heads, tokens, head_dim)
