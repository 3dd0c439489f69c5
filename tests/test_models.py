"""load(): the real model and its variants, the tiny one, folders and names."""

import json

import pytest
import torch
from transformers import DynamicCache, T5Config, T5ForConditionalGeneration
from transformers.utils import logging

import kvcourse as kv
from kvcourse import models

PROMPT = "I like rock music because"
FULL, SLIDING = "full_attention", "sliding_attention"


@pytest.fixture(scope="module")
def real():
    return kv.load()


def greedy(model, tokenizer, tokens, **options):
    ids = tokenizer(PROMPT, return_tensors="pt").input_ids
    return model.generate(ids, max_new_tokens=tokens, do_sample=False, **options)[0, ids.shape[1] :].tolist()


def test_real_model_writes_what_it_should(real):
    model, tokenizer = real
    text = tokenizer.decode(greedy(model, tokenizer, 15))
    assert text == " it's a way to connect with others and create a sense of community."
    assert model.dtype == torch.float32 and not model.training and torch.get_num_threads() == 1


def test_real_config_and_tokenizer(real):
    model, tokenizer = real
    c = model.config
    assert (c.num_hidden_layers, c.num_attention_heads, c.num_key_value_heads, c.head_dim) == (30, 9, 3, 64)
    assert c.rms_norm_eps == 1e-5 and c.rope_parameters["rope_theta"] == 100_000
    assert (tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.pad_token_id) == (1, 2, 0)
    assert (c.eos_token_id, model.generation_config.eos_token_id, model.generation_config.pad_token_id) == (2, 2, 0)
    assert tokenizer.padding_side == "left" and tokenizer.model_max_length == 8192
    for text in ("  12 apples,\t345", "héllo 世界 🙂\n\n  x"):
        assert tokenizer.decode(tokenizer(text).input_ids) == text
    assert tokenizer.tokenize("  12") == ["ĠĠ", "1", "2"]  # digits stand alone


def test_chat_template(real):
    _, tokenizer = real
    text = tokenizer.apply_chat_template(
        [{"role": "user", "content": "Hi"}], tokenize=False, add_generation_prompt=True
    )
    assert text.endswith("<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n")
    ids = tokenizer(text).input_ids
    assert ids.count(1) == 3 and ids.count(2) == 2  # the marks are single tokens


def test_left_padding_in_a_batch_changes_nothing(real):
    model, tokenizer = real
    batch = tokenizer([PROMPT, "Once"], return_tensors="pt", padding=True)
    out = model.generate(**batch, max_new_tokens=8, do_sample=False)
    assert out[0, batch.input_ids.shape[1] :].tolist() == greedy(model, tokenizer, 8)


def test_nothing_shown_or_saved_names_a_folder_of_this_machine(real, tmp_path):
    model, tokenizer = real
    folder = models.home() / "smollm2-135m"
    for file in folder.iterdir():
        if file.suffix != ".safetensors":
            assert str(models.home()) not in file.read_text(encoding="utf-8")
    assert str(models.home()) not in f"{tokenizer} {model.config} {model.name_or_path} {model.generation_config}"
    tokenizer.save_pretrained(tmp_path)
    assert str(models.home()) not in (tmp_path / "tokenizer_config.json").read_text()


def test_all_full_is_the_llama_and_windows_hold_fewer_bytes(real):
    """A window of W keeps W - 1 positions; a full layer all, but for the last token, which no step reads."""
    _, tokenizer = real
    n, window, new = len(tokenizer(PROMPT).input_ids), 8, 20
    per_position = 2 * 3 * 64 * 4  # keys and values, KV heads, head_dim, float32
    expected = greedy(*real, new)
    for sliding in (0, 15, 30):
        kinds = [SLIDING if i < sliding else FULL for i in range(30)]
        model, _ = kv.load(layer_types=kinds, sliding_window=window if sliding else None)
        cache = DynamicCache(config=model.config)
        tokens = greedy(model, tokenizer, new, cache=cache)
        held = sum(layer.keys.nbytes + layer.values.nbytes for layer in cache.layers)
        assert held == per_position * (sliding * (window - 1) + (30 - sliding) * (n + new - 1))
        assert (tokens == expected) == (sliding == 0)


def test_window_alone_makes_every_layer_slide():
    model, _ = kv.load("tiny", sliding_window=4)
    assert model.config.layer_types == [SLIDING] * 2 and model.config.sliding_window == 4


def test_tiny_variants_share_the_weights_and_a_wide_window_is_full_attention():
    plain, tokenizer = kv.load("tiny")
    ids = tokenizer("twelve chars", return_tensors="pt").input_ids
    with torch.no_grad():
        expected = plain(ids).logits
        for width, same in ((12, True), (11, False)):
            other, _ = kv.load("tiny", layer_types=[FULL, SLIDING], sliding_window=width)
            logits = other(ids).logits
            assert torch.allclose(logits, expected, atol=1e-4) == same
            assert torch.allclose(logits[:, :11], expected[:, :11], atol=1e-4)


@pytest.mark.parametrize(
    "options, said",
    [
        ({"layer_types": [FULL]}, "1 entries, the model has 2 layers"),
        ({"layer_types": [FULL, SLIDING]}, "no width is given"),
        ({"layer_types": [FULL, "linear"], "sliding_window": 4}, "'linear'.*full_attention, sliding_attention"),
        ({"sliding_window": 0}, "sliding_window is 0"),
        ({"sliding_window": 2.5}, "sliding_window is 2.5"),
    ],
)
def test_variants_that_do_not_fit(options, said):
    with pytest.raises(ValueError, match=said):
        kv.load("tiny", **options)


def test_tiny_is_the_same_each_time_and_leaves_the_random_state_alone(capsys):
    torch.manual_seed(7)
    expected = torch.rand(3)
    torch.manual_seed(7)
    first, tokenizer = kv.load("tiny")
    assert torch.equal(torch.rand(3), expected)
    second, _ = kv.load("tiny")
    tokens = greedy(first, tokenizer, 40)
    assert tokens == greedy(second, tokenizer, 40) and len(set(tokens)) > 10
    assert tokenizer.decode(tokens).isprintable()
    assert "nonsense" in capsys.readouterr().out


def test_tiny_tokenizer_round_trip_and_chat():
    _, tokenizer = kv.load("tiny")
    for text in ("plain", "  two  spaces\n\ttab ", "héllo 世界 🙂 \x00"):
        ids = tokenizer(text).input_ids
        assert tokenizer.decode(ids) == text and len(ids) == len(text.encode())
    chat = [{"role": "user", "content": "Hi"}]
    ids = tokenizer.apply_chat_template(chat, add_generation_prompt=True)["input_ids"]
    assert tokenizer.decode(ids) == "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    assert (ids.count(1), ids.count(2)) == (2, 1)


def test_options_reach_the_model():
    torch.set_num_threads(2)
    model, tokenizer = kv.load("tiny", threads=None, dtype=torch.bfloat16, attn_implementation="eager")
    assert torch.get_num_threads() == 2 and model.dtype == torch.bfloat16
    assert model.model.rotary_emb.inv_freq.dtype == torch.float32
    ids = tokenizer("abc", return_tensors="pt").input_ids
    assert model(ids, output_attentions=True).attentions[1].shape == (1, 4, 3, 3)
    kv.load("tiny")
    assert torch.get_num_threads() == 1


def test_unknown_names():
    for name in ("smollm", "./no/such/folder", "/no/such", ""):
        with pytest.raises(ValueError, match="'smollm2-135m', 'tiny'"):
            kv.load(name)


def test_a_folder_of_ones_own_encoder_decoder_too(tmp_path):
    llama, tokenizer = kv.load("tiny", sliding_window=4)
    sizes = {"d_model": 16, "d_kv": 8, "d_ff": 16, "num_heads": 2, "num_layers": 1, "vocab_size": 259}
    t5 = T5ForConditionalGeneration(T5Config(**sizes, decoder_start_token_id=0))
    for name, model in (("llama", llama), ("t5", t5)):
        model.save_pretrained(tmp_path / name)
        tokenizer.save_pretrained(tmp_path / name)
        loaded, words = kv.load(tmp_path / name)
        assert type(loaded) is type(model) and words("abc").input_ids == tokenizer("abc").input_ids
        for key, value in model.state_dict().items():
            assert torch.equal(loaded.state_dict()[key], value)
    with pytest.raises(ValueError, match="Llama-type.*t5"):
        kv.load(tmp_path / "t5", sliding_window=4)


def test_a_folder_without_a_model_is_one_sentence(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "no such type"}))
    with pytest.raises(models.ModelError) as error:
        kv.load(tmp_path)
    assert str(tmp_path) in str(error.value) and "\n" not in str(error.value)


def test_progress_bars_stay_as_the_reader_set_them(real):
    for choose, shown in ((logging.enable_progress_bar, True), (logging.disable_progress_bar, False)):
        choose()
        kv.load(sliding_window=64)
        assert logging.is_progress_bar_enabled() is shown
    logging.enable_progress_bar()
