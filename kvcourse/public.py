"""Sizes of models that people know, for arithmetic without their weights.

Each number stands in the `config.json` that the model's owner publishes on the Hugging Face hub, in the repository
named in `source`. Parameters are not listed: they are counted from the config, on torch's "meta" device.
"""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class PublicModel:
    """A published model: where its config stands, its transformers config class, and the values that matter here."""

    source: str
    kind: str
    sizes: dict = field(hash=False)

    def config(self):
        """The transformers config, made from the values alone: nothing is downloaded."""
        import transformers

        return getattr(transformers, f"{self.kind}Config")(**self.sizes)

    def parameters(self):
        """Weights of the model, counted without allocating any."""
        import torch
        import transformers

        with torch.device("meta"):
            return getattr(transformers, f"{self.kind}ForCausalLM")(self.config()).num_parameters()


def _sizes(vocab, hidden, inner, layers, q_heads, kv_heads, **more):
    return dict(
        vocab_size=vocab,
        hidden_size=hidden,
        intermediate_size=inner,
        num_hidden_layers=layers,
        num_attention_heads=q_heads,
        num_key_value_heads=kv_heads,
        **more,
    )


PUBLIC = {
    "SmolLM2-135M": PublicModel(
        "HuggingFaceTB/SmolLM2-135M-Instruct",
        "Llama",
        _sizes(49_152, 576, 1_536, 30, 9, 3, tie_word_embeddings=True),
    ),
    "Qwen3-0.6B": PublicModel(
        "Qwen/Qwen3-0.6B",
        "Qwen3",
        _sizes(151_936, 1_024, 3_072, 28, 16, 8, head_dim=128, tie_word_embeddings=True),
    ),
    "Llama-2-7B": PublicModel("meta-llama/Llama-2-7b-hf", "Llama", _sizes(32_000, 4_096, 11_008, 32, 32, 32)),
    "Llama-3.1-8B": PublicModel("meta-llama/Llama-3.1-8B", "Llama", _sizes(128_256, 4_096, 14_336, 32, 32, 8)),
    "Llama-3.1-70B": PublicModel("meta-llama/Llama-3.1-70B", "Llama", _sizes(128_256, 8_192, 28_672, 80, 64, 8)),
}
