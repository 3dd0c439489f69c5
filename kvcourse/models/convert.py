"""From the GGUF file to a folder that transformers loads: weights, config, tokenizer.

A GGUF keeps each weight in blocks of 32 numbers in 4 bits with a scale and an offset. We spell them out
and store bfloat16. Two things differ from what transformers expects: the names of the tensors, and the order of the
rows of queries and keys, which GGUF interleaves for another way of writing the rotary embedding.
"""

import errno
import re
from pathlib import Path

import gguf
import torch
from safetensors import SafetensorError
from safetensors.torch import save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import GenerationConfig, LlamaConfig, PreTrainedTokenizerFast

NAMES = {
    "token_embd": "embed_tokens",
    "output_norm": "norm",
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
END_OF_TEXT, TURN, END_OF_TURN = 0, 1, 2  # <|endoftext|>, <|im_start|>, <|im_end|>


def convert(source: Path, folder: Path):
    """Read the GGUF `source` and write config, weights (bfloat16), tokenizer into the empty `folder`."""
    reader = gguf.GGUFReader(source)
    fields = {name: field.contents() for name, field in reader.fields.items()}
    config = read_config(fields)
    try:
        save_file(read_weights(reader, config), folder / "model.safetensors", metadata={"format": "pt"})
    except SafetensorError as error:  # it keeps the error of the operating system as text only
        number = re.search(r"os error (\d+)", str(error))
        raise OSError(int(number[1]) if number else errno.EIO, str(error), str(folder)) from error
    config.save_pretrained(folder)
    GenerationConfig(bos_token_id=TURN, eos_token_id=END_OF_TURN, pad_token_id=END_OF_TEXT).save_pretrained(folder)
    read_tokenizer(fields).save_pretrained(folder)


def read_config(fields: dict) -> LlamaConfig:
    """The sizes of the model. Floats pass through float32 in a GGUF, so 1e-5 is rounded back to what was meant."""
    heads = fields["llama.attention.head_count"]
    return LlamaConfig(
        architectures=["LlamaForCausalLM"],
        dtype="bfloat16",
        vocab_size=fields["llama.vocab_size"],
        hidden_size=fields["llama.embedding_length"],
        intermediate_size=fields["llama.feed_forward_length"],
        num_hidden_layers=fields["llama.block_count"],
        num_attention_heads=heads,
        num_key_value_heads=fields["llama.attention.head_count_kv"],
        head_dim=fields["llama.embedding_length"] // heads,
        max_position_embeddings=fields["llama.context_length"],
        rms_norm_eps=float(f"{fields['llama.attention.layer_norm_rms_epsilon']:.6g}"),
        rope_parameters={"rope_type": "default", "rope_theta": fields["llama.rope.freq_base"]},
        tie_word_embeddings=True,
        bos_token_id=TURN,
        eos_token_id=END_OF_TURN,
        pad_token_id=END_OF_TEXT,
    )


def read_weights(reader: gguf.GGUFReader, config: LlamaConfig) -> dict[str, torch.Tensor]:
    """Name in transformers -> bfloat16 tensor. The output head is the embedding, so it is not stored."""
    heads = {"attn_q": config.num_attention_heads, "attn_k": config.num_key_value_heads}
    weights = {}
    for tensor in reader.tensors:
        values = torch.from_numpy(gguf.dequantize(tensor.data, tensor.tensor_type).copy())
        *block, part, _ = tensor.name.split(".")  # "blk.3.attn_q.weight" or "token_embd.weight"
        if part in heads:  # rows (head, half, pair) -> (head, pair, half) undone
            values = values.view(heads[part], -1, 2, values.shape[-1]).transpose(1, 2).reshape(values.shape)
        where = f"layers.{block[1]}." if block else ""
        weights[f"model.{where}{NAMES[part]}.weight"] = values.to(torch.bfloat16)
    return weights


def read_tokenizer(fields: dict) -> PreTrainedTokenizerFast:
    """Byte-level BPE with the chat template. Digits stand alone, as the model was trained ("smollm" in the GGUF)."""
    words = fields["tokenizer.ggml.tokens"]
    merges = [tuple(merge.split(" ")) for merge in fields["tokenizer.ggml.merges"]]
    tokenizer = Tokenizer(models.BPE({word: i for i, word in enumerate(words)}, merges))
    digits = pre_tokenizers.Digits(individual_digits=True)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([digits, pre_tokenizers.ByteLevel(add_prefix_space=False)])
    tokenizer.decoder = decoders.ByteLevel()
    control = [word for word, kind in zip(words, fields["tokenizer.ggml.token_type"], strict=True) if kind == 3]
    tokenizer.add_special_tokens([AddedToken(word, normalized=False, special=True) for word in control])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token=words[TURN],
        eos_token=words[END_OF_TURN],
        pad_token=words[END_OF_TEXT],
        unk_token=words[END_OF_TEXT],
        padding_side="left",  # generation goes on at the right end
        model_max_length=fields["llama.context_length"],
        clean_up_tokenization_spaces=False,
        chat_template=fields["tokenizer.chat_template"],
    )
