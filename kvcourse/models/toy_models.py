"""The two toy models before they have learned anything, and their tokenizers of characters."""

import string

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import Mamba2Config, Mamba2ForCausalLM, PreTrainedTokenizerFast, T5Config, T5ForConditionalGeneration

PAD, END, UNKNOWN = range(3)  # the first three tokens of both


def character_tokenizer(characters, **options):
    """One token for each character; `characters` and a padding, an end and an unknown token are all there are."""
    special = [options["pad_token"], options["eos_token"], options["unk_token"]]
    words = {word: i for i, word in enumerate([*special, *characters])}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token=options["unk_token"]))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    tokenizer.decoder = decoders.Fuse()
    if options["padding_side"] == "right":  # an encoder reads the end mark too
        end = (options["eos_token"], END)
        tokenizer.post_processor = processors.TemplateProcessing(f"$A {end[0]}", special_tokens=[end])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, clean_up_tokenization_spaces=False, model_max_length=512, **options
    )


def t5_tokenizer():
    """Digits, letters, space and hyphen; an end mark after each text, padding at its right."""
    characters = " -" + string.digits + string.ascii_lowercase
    return character_tokenizer(characters, pad_token="<pad>", eos_token="</s>", unk_token="<unk>", padding_side="right")


def mamba_tokenizer():
    """Letters, ">" and the full stop, which ends an answer; padding at the left, as the model writes at the right."""
    characters = ">" + string.ascii_lowercase
    return character_tokenizer(characters, pad_token="<pad>", eos_token=".", unk_token="<unk>", padding_side="left")


def t5():
    """Random weights: two layers of encoder and two of decoder, 4 heads, head_dim 16."""
    config = T5Config(
        vocab_size=41,
        d_model=64,
        d_kv=16,
        d_ff=256,
        num_heads=4,
        num_layers=2,
        num_decoder_layers=2,
        dropout_rate=0.0,
        tie_word_embeddings=True,
        pad_token_id=PAD,
        eos_token_id=END,
        decoder_start_token_id=PAD,
    )
    return T5ForConditionalGeneration(config)


def mamba():
    """Random weights: two layers, 4 heads with head_dim 32, state 16, convolutions over 4 tokens."""
    config = Mamba2Config(
        vocab_size=30,
        hidden_size=64,
        num_hidden_layers=2,
        state_size=16,
        num_heads=4,
        head_dim=32,
        n_groups=1,
        chunk_size=16,
        tie_word_embeddings=True,
        pad_token_id=PAD,
        bos_token_id=None,
        eos_token_id=END,
    )
    return Mamba2ForCausalLM(config)
