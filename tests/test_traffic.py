"""Counts of one forward against arithmetic by hand, on a small model with odd sizes."""

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

import kvcourse as kv
from kvcourse.traffic import count_reads

SIZES = dict(vocab_size=37, hidden_size=24, intermediate_size=20, num_hidden_layers=3, num_attention_heads=4)


def model(tied=True, dtype=torch.float32):
    torch.manual_seed(0)
    return LlamaForCausalLM(LlamaConfig(**SIZES, num_key_value_heads=2, tie_word_embeddings=tied)).to(dtype).eval()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("tied", [True, False])
def test_every_weight_is_read_once_whatever_the_tokens(tied, dtype):
    llama = model(tied, dtype)
    table = 0 if tied else llama.get_input_embeddings().weight.nbytes  # looked up, not read
    weights = sum(weight.nbytes for weight in llama.parameters()) - table
    with torch.no_grad(), count_reads(llama) as forwards:
        for batch, tokens in ((1, 1), (1, 7), (3, 5)):
            llama(torch.ones(batch, tokens, dtype=torch.long), use_cache=False)
    assert [f.positions for f in forwards] == [1, 7, 15]
    assert [f.weight_bytes for f in forwards] == [weights] * 3
    assert [f.cache_bytes for f in forwards] == [0] * 3
    assert [f.products for f in forwards] == [n * weights // dtype.itemsize for n in (1, 7, 15)]


def test_only_the_last_position_needs_the_last_layer():
    llama = model()
    with torch.no_grad(), count_reads(llama) as forwards:
        llama(input_ids=torch.ones(1, 7, dtype=torch.long), use_cache=False, logits_to_keep=1)
    head = 37 * 24
    assert forwards[0].products == 7 * (llama.num_parameters() - head) + head


def test_a_step_reads_the_cache_of_each_row_and_the_weights_once():
    llama = model()
    cache = kv.DynamicCache(config=llama.config)
    with torch.no_grad(), count_reads(llama, cache) as forwards:
        for tokens in (9, 1, 1):
            llama(torch.ones(4, tokens, dtype=torch.long), cache=cache)
    per_token = kv.measure.bytes_per_token(llama.config, torch.float32)
    assert per_token == 2 * 3 * 2 * 6 * 4
    assert [f.cache_bytes for f in forwards] == [4 * n * per_token for n in (9, 10, 11)]  # spare room is not read
    assert [f.read_bytes - f.cache_bytes for f in forwards] == [forwards[0].weight_bytes] * 3


def test_counting_stops_and_leaves_no_hook_behind_also_after_an_error():
    llama = model()
    with pytest.raises(RuntimeError, match="stop"), count_reads(llama) as forwards:
        llama(torch.ones(1, 2, dtype=torch.long))
        raise RuntimeError("stop")
    llama(torch.ones(1, 2, dtype=torch.long))
    assert len(forwards) == 1
    assert not any(m._forward_hooks for m in llama.modules())
