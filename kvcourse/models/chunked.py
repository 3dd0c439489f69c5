"""A tiny random model of the Llama 4 type, whose layers attend in chunks."""

import torch


def tiny_chunked(chunk, layers=4, every_fourth_full=False, attn_implementation=None, seed=0):
    """A random model in which a token sees its own chunk of `chunk` positions, and nothing before it.

    Every layer is chunked; with `every_fourth_full` each fourth one looks at the whole text, as in Llama 4. The same
    weights for the same seed; the caller's random state is left alone. It knows 64 tokens and no language.
    """
    from transformers import Llama4ForCausalLM, Llama4TextConfig

    full = [every_fourth_full and layer % 4 == 3 for layer in range(layers)]
    config = Llama4TextConfig(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=48,
        intermediate_size_mlp=48,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        num_local_experts=1,
        moe_layers=[],
        layer_types=["full_attention" if is_full else "chunked_attention" for is_full in full],
        attention_chunk_size=chunk,
        initializer_range=0.2,  # ten times the usual: attention then differs clearly from token to token
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=None,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = Llama4ForCausalLM(config)
    if attn_implementation:
        model.set_attn_implementation(attn_implementation)
    return model.eval()
