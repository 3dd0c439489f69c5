"""Perplexity: the definition written out, and the same through any cache that forgets nothing."""

import math

import pytest
import torch
import transformers

import kvcourse as kv
from kvcourse.models.twins import with_windows


@pytest.fixture(scope="module")
def text():
    return torch.randint(3, 97, (2, 21), generator=torch.Generator().manual_seed(3))


def test_perplexity_is_its_definition(llama, text):
    with torch.no_grad():
        odds = llama(text, use_cache=False).logits.log_softmax(-1)
    told = [odds[row, i, text[row, i + 1]].item() for row in range(2) for i in range(20)]
    assert kv.measure.perplexity(llama, text) == pytest.approx(math.exp(-sum(told) / 40), rel=1e-5)


@pytest.mark.parametrize("chunk", [1, 4, 5, 20, 21, 64])
def test_a_cache_fed_in_chunks_gives_the_same(llama, text, chunk):
    cache = kv.DynamicCache(config=llama.config)
    through = kv.measure.perplexity(llama, text, cache, chunk=chunk)
    assert through == pytest.approx(kv.measure.perplexity(llama, text), rel=1e-4)
    assert cache.get_seq_length() == 21


def test_a_mask_reaches_the_model_and_equals_the_window(llama, text):
    query, key = torch.arange(21)[:, None], torch.arange(21)
    mask = (key <= query) & (query - key < 4)
    windowed = kv.measure.perplexity(with_windows(llama, sliding_window=4), text)
    assert kv.measure.perplexity(llama, text, attention_mask=mask[None, None]) == pytest.approx(windowed, rel=1e-4)
    assert abs(windowed / kv.measure.perplexity(llama, text) - 1) > 0.01


def test_what_cannot_be_measured_is_refused(llama, text):
    cache = kv.DynamicCache()
    kv.greedy(llama, text[:, :3], 1, cache)
    with pytest.raises(ValueError, match="has seen 3 tokens"):
        kv.measure.perplexity(llama, text, cache)
    for ids, chunk in ((text[:, :1], 64), (text, 0)):
        with pytest.raises(ValueError, match="2 tokens or more"):
            kv.measure.perplexity(llama, ids, chunk=chunk)


SMALL_SIZES = dict(vocab_size=32, hidden_size=32, num_hidden_layers=2, num_attention_heads=4)
LATENT = dict(kv_lora_rank=16, q_lora_rank=16, qk_nope_head_dim=8, qk_rope_head_dim=8, v_head_dim=8)
EXPERTS = dict(n_routed_experts=4, num_experts_per_tok=2, n_group=1, topk_group=1, moe_intermediate_size=16)
DECODER = dict(
    vocab_size=32, d_model=32, decoder_layers=2, decoder_attention_heads=4, decoder_ffn_dim=32, encoder_layers=3
)
FAMILIES = {
    "latent attention": ("DeepseekV3", SMALL_SIZES | LATENT | EXPERTS),
    "latent and indexed": ("DeepseekV32", SMALL_SIZES | LATENT | EXPERTS | dict(index_n_heads=2, index_head_dim=8)),
    "multi-query": ("Falcon", SMALL_SIZES | dict(multi_query=True)),
    "multi-query, older": ("GPTBigCode", dict(vocab_size=32, n_embd=32, n_layer=2, n_head=4, multi_query=True)),
    "a decoder used alone": ("Bart", DECODER | dict(is_decoder=True, is_encoder_decoder=False)),
    "attention and states in one layer": (
        "FalconH1",
        SMALL_SIZES
        | dict(num_key_value_heads=2, head_dim=8, intermediate_size=32)
        | dict(mamba_d_ssm=32, mamba_n_heads=4, mamba_d_head=8, mamba_d_state=8, mamba_n_groups=1, mamba_chunk_size=8),
    ),
}


@pytest.mark.parametrize("name", FAMILIES)
def test_bytes_of_a_token_are_what_a_model_of_the_family_adds(name):
    family, sizes = FAMILIES[name]
    torch.manual_seed(0)
    config = getattr(transformers, f"{family}Config")(**sizes, pad_token_id=0, bos_token_id=1, eos_token_id=2)
    model = getattr(transformers, f"{family}ForCausalLM")(config).eval()
    cache = kv.DynamicCache(config=model.config)
    with torch.no_grad():
        model(torch.arange(3, 12)[None], cache=cache)
        before = cache.nbytes(used=True)
        model(torch.tensor([[5]]), cache=cache, position_ids=torch.tensor([[9]]))
    assert cache.nbytes(used=True) - before == kv.measure.bytes_per_token(model.config, torch.float32) > 0
    assert len(cache) == 2
    filled = kv.measure.fill(kv.DynamicCache(config=model.config), model.config, 3, dtype=torch.float32)
    assert filled.nbytes() == 3 * kv.measure.bytes_per_token(model.config, torch.float32)
