"""The conversion undone by hand: a small model is written as a GGUF, converted, and must compute the same."""

import errno

import gguf
import pytest
import torch
from safetensors import SafetensorError
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaForCausalLM

from kvcourse.models import convert
from kvcourse.models.tiny import CHAT, WORDS, tiny_config

HEADS = {"attn_q": 4, "attn_k": 2}


def tied_tiny():
    config = tiny_config()
    config.tie_word_embeddings = True
    torch.manual_seed(3)
    model = LlamaForCausalLM(config)
    for weight in model.parameters():
        weight.data = weight.data.bfloat16().float()  # values that bfloat16 holds exactly
    return model


def write_gguf(model, path):
    c, w = model.config, gguf.GGUFWriter(path, "llama")
    w.add_vocab_size(c.vocab_size)
    w.add_embedding_length(c.hidden_size)
    w.add_feed_forward_length(c.intermediate_size)
    w.add_block_count(c.num_hidden_layers)
    w.add_head_count(c.num_attention_heads)
    w.add_head_count_kv(c.num_key_value_heads)
    w.add_context_length(c.max_position_embeddings)
    w.add_layer_norm_rms_eps(c.rms_norm_eps)
    w.add_rope_freq_base(c.rope_parameters["rope_theta"])
    w.add_token_list([*WORDS, "1Ġ"])  # a word that must never be made: digits stand alone
    w.add_token_merges(["1 Ġ"])
    w.add_token_types([3, 3, 3] + [1] * 257)
    w.add_chat_template(CHAT)
    ours = {theirs: name for name, theirs in convert.NAMES.items()}
    for key, value in model.model.state_dict().items():
        *block, _ = key.split(".")
        prefix = f"blk.{block[1]}." if block[0] == "layers" else ""
        part = ours[".".join(block[2:] if prefix else block)]
        if part in HEADS:  # row i of a head goes to 2i, row i + head_dim/2 to 2i + 1
            half = value.view(HEADS[part], 2, 8, -1)
            value = torch.stack((half[:, 0], half[:, 1]), dim=2).reshape(value.shape)
        w.add_tensor(f"{prefix}{part}.weight", value.numpy())
    for write in (w.write_header_to_file, w.write_kv_data_to_file, w.write_tensors_to_file, w.close):
        write()


@pytest.fixture
def folder(tmp_path):
    write_gguf(tied_tiny(), tmp_path / "tiny.gguf")
    (tmp_path / "out").mkdir()
    convert.convert(tmp_path / "tiny.gguf", tmp_path / "out")
    return tmp_path / "out"


def test_same_logits_and_config(folder):
    before, after = tied_tiny(), AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    ids = torch.arange(3, 40)[None]
    with torch.no_grad():
        assert torch.equal(before(ids).logits, after(ids).logits)
    assert after.config.rms_norm_eps == 1e-5
    assert after.generation_config.eos_token_id == 2


def test_tokenizer_keeps_digits_apart_and_marks_whole(folder):
    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert tokenizer.tokenize("1 <|im_end|>") == ["1", "Ġ", "<|im_end|>"]
    assert tokenizer.apply_chat_template([{"role": "user", "content": "x"}], tokenize=False).startswith("<|im_start|>")


def test_a_full_disk_keeps_its_error_number(folder, monkeypatch):
    def full(*args, **kwargs):
        raise SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")

    monkeypatch.setattr(convert, "save_file", full)
    with pytest.raises(OSError) as error:
        convert.convert(folder.parent / "tiny.gguf", folder)
    assert error.value.errno == errno.ENOSPC
