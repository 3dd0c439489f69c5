"""A second model on the same weights: every layer as it was, or some of them with a sliding window."""

import torch

from .variants import windowed_config


def with_windows(model, layer_types=None, sliding_window=None, attn_implementation=None):
    """A model that shares the weights of `model` and has a kind of attention for each layer.

    `model`: of the Llama type. `layer_types`, `sliding_window`: as in `load`; without `layer_types` every layer slides.
    `attn_implementation`: "eager" to get attention weights; by default that of `model`. It takes next to no memory and
    time, where loading the weights again would take both. ValueError where the sizes do not fit (`windowed_config`).
    """
    from transformers import MinistralForCausalLM

    config = windowed_config(model.config, layer_types, sliding_window)
    config.dtype = model.dtype
    with torch.device("meta"):  # no memory: every tensor is replaced below
        twin = MinistralForCausalLM(config)
    twin.load_state_dict(model.state_dict(), assign=True)
    twin.tie_weights()
    twin.model.rotary_emb = model.model.rotary_emb  # its frequencies are no weights, so no state dict holds them
    twin.generation_config = model.generation_config
    twin.set_attn_implementation(attn_implementation or model.config._attn_implementation)
    return twin.eval()
