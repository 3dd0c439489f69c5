"""The same weights with other attention: sliding windows in some layers or in all of them.

Ministral is Llama with a window for each layer: it takes the weights of a Llama-type model unchanged and obeys
`layer_types`. So one set of weights shows what a window saves, and what it costs in text.
"""

KINDS = ("full_attention", "sliding_attention")


def windowed_config(config, layer_types=None, sliding_window=None):
    """A MinistralConfig with the sizes of `config` and a kind of attention for each layer.

    layer_types: a list of "full_attention" and "sliding_attention", one a layer; None means all sliding.
    sliding_window: positions that a token sees, itself included. ValueError says what does not fit.
    """
    from transformers import MinistralConfig

    layers = config.num_hidden_layers
    biases = getattr(config, "attention_bias", False) or getattr(config, "mlp_bias", False)
    if config.model_type not in ("llama", "mistral", "ministral") or biases:
        raise ValueError(
            f"layer_types and sliding_window need a Llama-type model without biases, this one is {config.model_type}; "
            "load it without these two options"
        )
    if sliding_window is not None and (type(sliding_window) is not int or sliding_window < 1):
        raise ValueError(f"sliding_window is {sliding_window!r}; give a whole number of positions, 1 or more")
    if layer_types is None:
        layer_types = ["sliding_attention"] * layers
    layer_types = list(layer_types)
    if len(layer_types) != layers:
        raise ValueError(f"layer_types has {len(layer_types)} entries, the model has {layers} layers; give one a layer")
    if unknown := sorted(set(layer_types) - set(KINDS)):
        raise ValueError(f"layer_types holds {', '.join(map(repr, unknown))}; possible are {', '.join(KINDS)}")
    if sliding_window is None and "sliding_attention" in layer_types:
        raise ValueError(
            "layer_types asks for sliding layers but no width is given; add sliding_window=64, for example"
        )
    sizes = {k: v for k, v in config.to_dict().items() if k not in ("model_type", "architectures")}
    # Ministral wants a width even when no layer slides; none is ever as wide as this
    sizes.update(layer_types=layer_types, sliding_window=sliding_window or config.max_position_embeddings)
    return MinistralConfig(architectures=["MinistralForCausalLM"], **sizes)
