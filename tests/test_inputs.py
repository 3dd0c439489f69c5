"""The look at generate(): what the loop keeps grows, what enters the model does not; looking changes nothing."""

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

import kvcourse as kv
from kvcourse.inputs import shapes, watch_inputs

torch.set_num_threads(1)
OPTIONS = dict(do_sample=False, max_new_tokens=4, pad_token_id=0, eos_token_id=None)


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    sizes = dict(hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4)
    return LlamaForCausalLM(LlamaConfig(vocab_size=61, num_key_value_heads=2, **sizes)).eval()


@pytest.fixture
def prompt():
    ids = torch.arange(3, 13).view(2, 5)
    mask = torch.ones_like(ids)
    mask[0, :2] = 0  # left padding; a mask of ones is dropped by generate()
    return {"input_ids": ids, "attention_mask": mask}


def test_the_loop_grows_and_the_forward_does_not(model, prompt):
    with watch_inputs(model) as steps:
        text = model.generate(**prompt, cache=kv.StaticCache(model.config, 16), **OPTIONS)
    assert [tuple(step.loop["input_ids"].shape) for step in steps] == [(2, n) for n in (5, 6, 7, 8)]
    assert [tuple(step.loop["attention_mask"].shape) for step in steps] == [(2, n) for n in (5, 6, 7, 8)]
    for number, step in enumerate(steps[1:], start=5):
        assert torch.equal(step.forward["input_ids"], text[:, number : number + 1])
        assert step.forward["attention_mask"].shape == (2, 1, 1, 16)
        assert step.forward["attention_mask"].sum((1, 2, 3)).tolist() == [number + 1 - 2, number + 1]
        assert step.forward["position_ids"].tolist() == [[number - 2], [number]]


def test_watching_changes_nothing_and_leaves_no_trace(model, prompt):
    wanted = model.generate(**prompt, **OPTIONS)
    with watch_inputs(model) as outer, watch_inputs(model) as inner:
        assert torch.equal(model.generate(**prompt, **OPTIONS), wanted)
    assert len(outer) == len(inner) == 4
    assert "prepare_inputs_for_generation" not in vars(model)
    with watch_inputs(model) as outer:
        with pytest.raises(ZeroDivisionError), watch_inputs(model):
            raise ZeroDivisionError
        model.generate(**prompt, **OPTIONS)
    assert len(outer) == 4 and "prepare_inputs_for_generation" not in vars(model)


def test_shapes_in_words():
    assert shapes({"b": torch.zeros(1, 26), "a": torch.zeros(())}) == "a (), b (1, 26)"
