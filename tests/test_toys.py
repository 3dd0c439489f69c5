"""The two toy models: their task, their training, what the shipped ones know, and caches in them."""

import json
import logging

import pytest
import torch
from safetensors import safe_open
from transformers.utils import logging as transformers_logging

import kvcourse as kv
from kvcourse.models import toys, train_toy

NAMES = list(toys.TOYS)


@pytest.fixture(scope="module")
def t5():
    return kv.load("toy-t5")


@pytest.fixture(scope="module")
def mamba():
    return kv.load("toy-mamba")


def new_pair(model):
    return kv.EncoderDecoderCache(kv.DynamicCache(config=model.config), kv.DynamicCache(config=model.config))


# The task


def test_numbers_in_words():
    known = {
        0: "zero",
        13: "thirteen",
        20: "twenty",
        42: "forty-two",
        100: "one hundred",
        999: "nine hundred ninety-nine",
    }
    known |= {1000: "one thousand", 10_010: "ten thousand ten", 80_300: "eighty thousand three hundred"}
    known |= {70_142: "seventy thousand one hundred forty-two"}
    assert {number: toys.in_words(number) for number in known} == known
    assert len({toys.in_words(number) for number in range(100_000)}) == 100_000


@pytest.mark.parametrize("name", NAMES)
def test_training_never_shows_what_is_held_out(name):
    shown = toys.examples(name, 1000, unseen=False)
    asked = toys.examples(name, 1000)
    assert not {question for question, _ in shown} & {question for question, _ in asked}
    lengths = {len(question.rstrip(">")) for question, _ in shown}
    assert lengths == set(toys.TOYS[name].lengths)
    assert all(len(question.rstrip(">")) == 5 for question, _ in toys.examples(name, 50, length=5))
    assert asked == toys.examples(name, 1000) != toys.examples(name, 1000, seed=1)


def test_one_number_in_ten_is_held_out_and_every_digit_in_every_place_is_shown():
    numbers = [str(number) for number in range(100_000)]
    shown = [number for number in numbers if not toys.held_out(number)]
    assert 0.895 < len(shown) / len(numbers) < 0.905
    assert set(map(str, range(100))) <= set(shown)
    for place in range(5):
        counts = [sum(number.zfill(5)[place] == digit for number in shown) for digit in "0123456789"]
        assert min(counts) > 8500


# The tokenizers


def test_tokenizers(t5, mamba):
    _, tokenizer = t5
    batch = tokenizer(["70142", "7"], return_tensors="pt", padding=True)
    assert batch.input_ids.shape == (2, 6) and batch.attention_mask[1].tolist() == [1, 1, 0, 0, 0, 0]
    assert tokenizer.decode(batch.input_ids[1]) == "7</s><pad><pad><pad><pad>"
    assert tokenizer.decode(tokenizer("forty-two x").input_ids, skip_special_tokens=True) == "forty-two x"
    _, tokenizer = mamba
    batch = tokenizer(["abc>", "z>"], return_tensors="pt", padding=True)
    assert batch.attention_mask[1].tolist() == [0, 0, 1, 1]  # the model writes at the right
    assert tokenizer.decode(batch.input_ids[1]) == "<pad><pad>z>"
    assert tokenizer.decode(tokenizer("abc>abc.").input_ids) == "abc>abc."
    for _, tokenizer in (t5, mamba):
        assert tokenizer("é").input_ids[0] == tokenizer.unk_token_id


# What is shipped


@pytest.mark.parametrize("name", NAMES)
def test_shipped_files_are_small_and_belong_to_the_definition(name):
    folder, toy = toys.folder(name), toys.TOYS[name]
    assert (folder / "model.safetensors").stat().st_size < 1_000_000
    with safe_open(folder / "model.safetensors", framework="pt") as file:
        assert {file.get_tensor(key).dtype for key in file.keys()} == {torch.bfloat16}  # noqa: SIM118
    model, tokenizer = kv.load(name)
    skip = {"dtype", "architectures", "transformers_version", "_name_or_path"}
    made = {key: value for key, value in toy.new_model().config.to_dict().items() if key not in skip}
    assert {key: value for key, value in model.config.to_dict().items() if key in made} == made
    assert tokenizer.get_vocab() == toy.new_tokenizer().get_vocab() and len(tokenizer) == model.config.vocab_size
    assert model.dtype == torch.float32 and not model.training
    json.loads((folder / "config.json").read_text(encoding="utf-8"))
    card = (folder / "README.md").read_text(encoding="utf-8")
    assert f"{sum(weight.numel() for weight in model.parameters()):,} weights" in card
    assert f"train_toy {name[4:]}`" in card and f"train_toy {name[4:]} --measure`" in card


@pytest.mark.parametrize("name", NAMES)
def test_accuracy_on_held_out_questions(name):
    model, tokenizer = kv.load(name)
    new_cache = {"toy-t5": lambda: new_pair(model), "toy-mamba": lambda: kv.DynamicCache(config=model.config)}[name]
    pairs = toys.examples(name, 250, seed=2)
    assert toys.accuracy(model, tokenizer, pairs, new_cache=new_cache) >= 0.97


def test_loading_and_generating_say_nothing():
    said, handler = [], logging.Handler()
    handler.emit = said.append
    transformers_logging.warning_once.cache_clear()
    transformers_logging.get_logger().addHandler(handler)
    try:
        for name, question in (("toy-t5", "12"), ("toy-mamba", "ab>")):
            toys.answers(*kv.load(name), [question])
    finally:
        transformers_logging.get_logger().removeHandler(handler)
    assert [record.getMessage() for record in said] == []


# Training


@pytest.mark.parametrize("name, steps", [("toy-t5", 12), ("toy-mamba", 45)])
def test_first_steps_of_training_lower_the_loss_and_repeat_exactly(name, steps):
    torch.manual_seed(7)
    expected = torch.rand(3)
    torch.manual_seed(7)
    _, losses = train_toy.train(name, steps)
    assert torch.equal(torch.rand(3), expected)  # the caller's random state is left alone
    assert sum(losses[-3:]) < 0.92 * sum(losses[:3])
    assert train_toy.train(name, 3)[1] == losses[:3] != train_toy.train(name, 3, seed=1)[1]


def test_labels_count_the_answer_alone():
    tokenizer = toys.TOYS["toy-mamba"].new_tokenizer()
    batch = train_toy.inputs(tokenizer, [("abc>", "abc"), ("wxyz>", "wxyz")], reads_first=False)
    for labels, answer in zip(batch["labels"], ("abc.", "wxyz."), strict=True):
        assert tokenizer.decode(labels[labels != -100]) == answer
    tokenizer = toys.TOYS["toy-t5"].new_tokenizer()
    batch = train_toy.inputs(tokenizer, [("42", "forty-two"), ("7", "seven")], reads_first=True)
    assert tokenizer.decode(batch["labels"][1][batch["labels"][1] != -100]) == "seven</s>"
    assert tokenizer.decode(batch["input_ids"][0]) == "42</s>"


# Caches in them


@pytest.mark.parametrize("beams", [1, 4])
def test_t5_writes_the_same_with_our_caches_and_with_none(t5, beams):
    model, tokenizer = t5
    inputs = tokenizer(["70142", "8", "313"], return_tensors="pt", padding=True)
    options = {"num_beams": beams, "do_sample": False}
    cache = new_pair(model)
    ours = model.generate(**inputs, cache=cache, **options)
    assert torch.equal(ours, model.generate(**inputs, use_cache=False, **options))
    assert cache.cross_attention_cache.get_seq_length() == 6 and cache.batch_size == 3 * beams
    if beams == 1:  # a beam search goes on after it has seen its best answer
        assert cache.get_seq_length() == ours.shape[1] - 1
        assert tokenizer.decode(ours[0], skip_special_tokens=True) == toys.in_words(70142)


@pytest.mark.parametrize("beams", [1, 4])
def test_mamba_writes_the_same_with_our_cache_and_with_none(mamba, beams):
    model, tokenizer = mamba
    inputs = tokenizer(["hsreltpu>", "abc>", "qqqqqq>"], return_tensors="pt", padding=True)
    options = {"num_beams": beams, "do_sample": False}
    ours = model.generate(**inputs, cache=kv.DynamicCache(config=model.config), **options)
    assert torch.equal(ours, model.generate(**inputs, use_cache=False, **options))
    assert tokenizer.decode(ours[0]) == "hsreltpu>hsreltpu."


@torch.no_grad()
def test_mamba_state_has_the_same_bytes_at_any_length(mamba):
    model, _ = mamba
    # 2 layers in float32: convolutions of 128 + 2 x 16 channels over 4 tokens; 4 heads x 32 x state 16
    expected = 2 * 4 * ((128 + 2 * 16) * 4 + 4 * 32 * 16)
    assert expected == 21_504
    cache, fed = kv.DynamicCache(config=model.config), 0
    for tokens in (1, 1, 7, 300):
        ids = torch.arange(tokens).remainder(26)[None] + 4
        model(ids, cache=cache)
        fed += tokens
        assert cache.nbytes() == expected and cache.nbytes(used=True) == expected
    batch = kv.DynamicCache(config=model.config)
    model(torch.full((3, 5), 4), cache=batch)
    assert batch.nbytes() == 3 * expected


def test_mamba_forgets_what_is_longer_than_its_training(mamba):
    known, longer = (toys.accuracy(*mamba, toys.examples("toy-mamba", 100, length)) for length in (8, 12))
    assert known > 0.9 and longer < 0.5


def test_cross_attention_is_projected_once_for_a_source(t5):
    model, tokenizer = t5
    inputs = tokenizer("70142", return_tensors="pt")
    source, layers = inputs.input_ids.shape[1], 2
    with toys.count_projections(model) as cached:
        steps = model.generate(**inputs, cache=new_pair(model), do_sample=False).shape[1] - 1
    assert cached == {"self": layers * steps, "cross": layers * source}
    with toys.count_projections(model) as plain:
        model.generate(**inputs, use_cache=False, do_sample=False)
    assert plain == {"self": layers * steps * (steps + 1) // 2, "cross": layers * source * steps}
    with torch.no_grad():
        model(**inputs, decoder_input_ids=torch.tensor([[0]]))
    assert plain["cross"] == layers * source * steps  # counting ended with the block
