"""`"tiny"`: a random model of the Llama type with a tokenizer of bytes, made on the spot.

For tests, and for those who wait for the real one. It computes what a real model computes and knows nothing.
"""

import string

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, MinistralForCausalLM, PreTrainedTokenizerFast

from .variants import windowed_config

SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
BYTES = sorted(pre_tokenizers.ByteLevel.alphabet())  # one printable letter stands for each byte
WORDS = SPECIAL + BYTES
CHAT = (
    "{% for message in messages %}"
    "<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def tiny_config() -> LlamaConfig:
    """2 layers, 4 query heads that share 2 KV heads, head_dim 16."""
    return LlamaConfig(
        architectures=["LlamaForCausalLM"],
        vocab_size=len(WORDS),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        max_position_embeddings=8192,
        rms_norm_eps=1e-5,
        tie_word_embeddings=False,
        initializer_range=0.2,  # ten times the usual: attention then differs clearly from token to token
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
    )


def tiny_model(window=(None, None), *, dtype, device_map=None, attn_implementation=None, seed=0):
    """The same weights for the same seed, whatever the window; the caller's random state is left alone."""
    if device_map == "auto":
        device_map = torch.accelerator.current_accelerator()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = LlamaForCausalLM(tiny_config())
        if window != (None, None):
            weights = model.state_dict()
            model = MinistralForCausalLM(windowed_config(model.config, *window))
            model.load_state_dict(weights)
    # greedy text is then made of letters one can print, and never ends by chance
    letters = torch.tensor([word in string.printable for word in WORDS])
    model.lm_head.weight.data[~letters] = 0.0
    if attn_implementation:
        model.set_attn_implementation(attn_implementation)
    dtype = getattr(torch, dtype) if isinstance(dtype, str) else dtype
    model.config.dtype = dtype
    for weight in model.parameters():  # not model.to(dtype): the rotary frequencies stay in float32
        weight.data = weight.data.to(dtype)
    return model.to(device_map or "cpu")


def tiny_tokenizer() -> PreTrainedTokenizerFast:
    """Three special tokens, then one token for each byte: any text comes back exactly."""
    tokenizer = Tokenizer(models.BPE({word: i for i, word in enumerate(WORDS)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(SPECIAL)
    end_of_text, turn, end_of_turn = SPECIAL
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token=turn,
        eos_token=end_of_turn,
        pad_token=end_of_text,
        unk_token=end_of_text,
        padding_side="left",
        model_max_length=8192,
        clean_up_tokenization_spaces=False,
        chat_template=CHAT,
    )
