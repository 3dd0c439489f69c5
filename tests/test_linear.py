"""Convolution and recurrent states: decoding, rolling back, batches, copies, bytes."""

import copy
import pickle

import pytest
import torch
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.functional import conv1d, pad

from kvcourse.cache import Cache
from kvcourse.hf import layer_specs
from kvcourse.layers import DynamicLayer, HybridLayer, LinearLayer, StaticLayer

PROMPT = torch.tensor([[5, 17, 33, 2, 61, 9, 44]])
PADDED = torch.tensor([[0, 0, 0, 5, 17, 33, 2], [8, 61, 9, 44, 23, 3, 70]])
KERNEL = 4


def tiny(kind):
    sizes = dict(vocab_size=97, hidden_size=32, num_hidden_layers=2, pad_token_id=0, bos_token_id=1, eos_token_id=None)
    sizes |= dict(initializer_range=0.5)
    torch.manual_seed(1)
    if kind == "mamba":
        config = transformers.MambaConfig(**sizes, state_size=4, time_step_rank=4)
        return transformers.MambaForCausalLM(config).eval()
    if kind == "mamba2":
        config = transformers.Mamba2Config(**sizes, num_heads=4, head_dim=16, state_size=8, n_groups=1, chunk_size=8)
        return transformers.Mamba2ForCausalLM(config).eval()
    sizes |= dict(intermediate_size=48, num_attention_heads=4, num_key_value_heads=2)
    config = transformers.Lfm2Config(
        **(sizes | {"num_hidden_layers": 3}),
        layer_types=["conv", "full_attention", "conv"],
        block_auto_adjust_ff_dim=False,
    )
    return transformers.Lfm2ForCausalLM(config).eval()


@pytest.fixture(scope="module", params=["mamba", "mamba2", "lfm2"])
def model(request):
    return tiny(request.param)


@pytest.fixture(scope="module")
def lfm2():
    return tiny("lfm2")


def cache_for(model):
    specs = layer_specs(model.config)
    return Cache(layers=[DynamicLayer() if spec.kind == "full_attention" else LinearLayer() for spec in specs])


def conv_layer(recording=False, **options):
    layer = LinearLayer(**options)
    if recording:
        layer.activate_past_recording()
    return layer


def inputs(batch, length, channels=3, start=1):
    """Convolution inputs (batch, channels, length), every number different."""
    count = batch * channels * length
    return torch.arange(start, start + count, dtype=torch.float64).view(batch, length, channels).transpose(1, 2)


def convolve(seen, count):
    """The last `count` outputs of a causal convolution whose taps are all different."""
    taps = torch.tensor([1.0, 10.0, 100.0, 1000.0], dtype=seen.dtype).expand(seen.shape[1], 1, KERNEL)
    return conv1d(pad(seen, (KERNEL - 1, 0)), taps, groups=seen.shape[1])[..., -count:]


def contents(cache):
    """Everything in a cache, as plain values that can be compared."""
    states = [storage.__getstate__() for layer in cache.layers for storage in layer.storages()]
    return [{k: v.tolist() if torch.is_tensor(v) else v for k, v in state.items()} for state in states]


# In models


@pytest.mark.parametrize("length", [1, 2, 3, 4, 7])  # the kernel is 4 wide
@pytest.mark.parametrize("options", [{}, {"num_beams": 3}, {"do_sample": True}])
def test_generate_gives_the_tokens_of_no_cache_and_of_transformers(model, length, options):
    texts = []
    for cache in (cache_for(model), transformers.DynamicCache(config=model.config), None):
        torch.manual_seed(7)
        how = {"use_cache": False} if cache is None else {"cache": cache}
        texts.append(model.generate(PROMPT[:, :length], **({"do_sample": False, "max_new_tokens": 9} | options), **how))
    assert torch.equal(texts[0], texts[1]) and torch.equal(texts[0], texts[2])
    assert len(set(texts[0][0].tolist())) > 4


def test_left_padded_batches(model):
    mask = (PADDED != 0).long()
    options = dict(attention_mask=mask, do_sample=False, max_new_tokens=9)
    for more in ({}, {"num_beams": 2}):
        ours = model.generate(PADDED, cache=cache_for(model), **options, **more)
        assert torch.equal(ours, model.generate(PADDED, use_cache=False, **options, **more))


@pytest.mark.parametrize("recording", [False, True])
def test_one_token_at_a_time_gives_the_logits_of_one_forward(model, recording):
    cache = cache_for(model)
    if recording:
        cache.activate_past_recording()
    with torch.no_grad():
        whole = model(PROMPT, use_cache=False).logits
        parts = [model(token, cache=cache).logits for token in PROMPT.split(1, dim=1)]
    torch.testing.assert_close(torch.cat(parts, dim=1), whole, atol=2e-4, rtol=2e-4)


@pytest.mark.parametrize("kind", ["mamba2", "lfm2"])  # Mamba 1 of transformers 5.24 is wrong on a filled state
def test_chunks_give_the_logits_of_one_forward(kind):
    model = tiny(kind)
    cache = cache_for(model)
    with torch.no_grad():
        whole = model(PROMPT, use_cache=False).logits
        parts = [model(part, cache=cache).logits for part in PROMPT.split([2, 3, 2], dim=1)]
    torch.testing.assert_close(torch.cat(parts, dim=1), whole, atol=2e-4, rtol=2e-4)


def test_states_equal_those_of_transformers(model):
    ours, theirs = cache_for(model), transformers.DynamicCache(config=model.config)
    with torch.no_grad():
        for part in PROMPT.split([2, 1, 1, 1, 1, 1], dim=1):
            assert torch.equal(model(part, cache=ours).logits, model(part, cache=theirs).logits)
    for index, (a, b) in enumerate(zip(ours.layers, theirs.layers, strict=True)):
        if a.is_linear:
            assert torch.equal(a.conv_states[0], b.conv_states[0])
            assert torch.equal(ours.get_conv_state(index), theirs.get_conv_state(index))
            assert a.has_previous_state == b.has_previous_state == {0: True}
            assert a.is_recurrent_states_initialized == b.is_recurrent_states_initialized
            if a.is_recurrent_states_initialized[0]:
                assert torch.equal(ours.get_recurrent_state(index), theirs.get_recurrent_state(index))
    assert ours.is_linear == theirs.is_linear and ours.has_previous_state() == theirs.has_previous_state()


def test_bytes_of_a_state_model_do_not_depend_on_the_length():
    model = tiny("mamba2")
    held = []
    for length in (1, 7):
        cache = cache_for(model)
        with torch.no_grad():
            model(PROMPT[:, :length], cache=cache)
        held.append(cache.nbytes())
    # two layers, float32: a window of 4 over (64 + 2 x 8) channels, and a state of 4 heads x 16 x 8
    assert held == [2 * 4 * (4 * 80 + 4 * 16 * 8)] * 2
    assert cache.positions(0) == [] and cache.positions(1) == []


def test_a_prefix_filled_under_inference_mode_continues_twice_and_with_gradients(model):
    cache = cache_for(model)
    with torch.inference_mode():
        model(PROMPT[:, :5], cache=cache)
    whole = model(PROMPT, use_cache=False).logits
    copies = [copy.deepcopy(cache), pickle.loads(pickle.dumps(cache)), cache]
    for twin in copies:
        with torch.no_grad():
            parts = [model(token, cache=twin).logits for token in PROMPT[:, 5:].split(1, dim=1)]
        torch.testing.assert_close(torch.cat(parts, dim=1), whole[:, 5:], atol=2e-4, rtol=2e-4)
    trained = cache_for(model)
    model(PROMPT, cache=trained).logits.sum().backward()  # gradients flow although there is a cache
    twin = copy.deepcopy(trained)
    assert not any(
        storage.buffer.requires_grad for layer in twin.layers for storage in layer.storages() if storage.is_allocated
    )


@pytest.mark.parametrize("length", [1, 2, 7])
def test_prompt_lookup_crops_recorded_convolutions(lfm2, length):
    ids = torch.cat([PROMPT[:, :length]] * 3, dim=1)
    cache = cache_for(lfm2)
    ours = lfm2.generate(ids, cache=cache, prompt_lookup_num_tokens=3, do_sample=False, max_new_tokens=15)
    assert torch.equal(ours, lfm2.generate(ids, use_cache=False, do_sample=False, max_new_tokens=15))


def test_decoding_compiles_to_one_graph_and_once():
    model = tiny("mamba2")
    cache = Cache(layers=[LinearLayer(keep_buffers=True) for _ in range(2)])
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    step = torch.compile(model.forward, fullgraph=True, backend="eager")
    with torch.no_grad():
        whole = model(PROMPT, use_cache=False).logits
        for _ in range(2):
            model(PROMPT[:, :2], cache=cache)
            addresses = [state.data_ptr() for state in (cache.get_conv_state(0), cache.get_recurrent_state(0))]
            parts = [step(token, cache=cache).logits for token in PROMPT[:, 2:].split(1, dim=1)]
            torch.testing.assert_close(torch.cat(parts, dim=1), whole[:, 2:], atol=2e-4, rtol=2e-4)
            assert addresses == [s.data_ptr() for s in (cache.get_conv_state(0), cache.get_recurrent_state(0))]
            cache.reset()
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1


# The layer by itself


def test_the_window_keeps_its_address_and_pads_a_short_text():
    layer, whole = conv_layer(), inputs(2, 9)
    seen = layer.update_conv_state(whole[..., :2], conv_kernel_size=KERNEL)
    assert torch.equal(seen, pad(whole[..., :2], (2, 0)))
    state = layer.conv_states[0]
    address = state.data_ptr()
    seen = layer.update_conv_state(whole[..., 2:9], conv_kernel_size=KERNEL)
    assert torch.equal(seen, pad(whole, (2, 0)))
    assert torch.equal(layer.conv_states[0], whole[..., -KERNEL:]) and layer.conv_states[0].data_ptr() == address
    state.copy_(whole[..., :KERNEL])  # models write into the state in place
    assert torch.equal(layer.conv_states[0], whole[..., :KERNEL])


def test_the_caller_s_tensor_is_not_kept():
    layer, whole, state = conv_layer(), inputs(2, 4), torch.ones(2, 3)
    layer.update_conv_state(whole)
    layer.update_recurrent_state(state)
    whole.zero_(), state.zero_()
    assert torch.equal(layer.conv_states[0], inputs(2, 4)) and torch.equal(layer.recurrent_states[0], torch.ones(2, 3))


@settings(max_examples=150, deadline=None, derandomize=True)
@given(
    steps=st.lists(st.one_of(st.integers(1, 6), st.integers(-9, 0)), min_size=1, max_size=14),
    batch_changes=st.lists(st.sampled_from(["reorder", "repeat", "select", "copy", "pickle", None]), min_size=14),
    recording_from=st.integers(0, 3),
)
def test_random_steps_against_a_plain_list(steps, batch_changes, recording_from):
    """Positive: feed so many inputs. Zero or negative: crop. The oracle holds the whole text and nothing else."""
    cache = Cache(layers=[LinearLayer(), LinearLayer(number_of_states=2)])
    text = torch.zeros(2, 3, 0, dtype=torch.float64)
    reachable, from_start, fed = 0, False, 0  # how far a crop may go back; inputs numbered so far
    recording = False
    for turn, (step, change) in enumerate(zip(steps, batch_changes, strict=False)):
        if turn == recording_from:
            cache.activate_past_recording()
            recording, from_start, reachable = True, text.shape[-1] == 0, 0
        used = text.shape[-1] > 0
        if step > 0:
            new = inputs(text.shape[0], step, start=1 + fed)
            fed += new.numel()
            from_start = from_start if used else recording
            text = torch.cat([text, new], dim=-1)
            reachable += step if recording else 0
            for layer in cache.layers:
                for index in range(layer.number_of_states):
                    seen = layer.update_conv_state(new, index, conv_kernel_size=KERNEL)
                    assert torch.equal(convolve(seen, step), convolve(text, step))
        elif step < 0 and used and not (recording and (from_start or -step <= reachable)):
            before = contents(cache)
            with pytest.raises(RuntimeError, match="record|reset"):
                cache.crop(step)
            assert contents(cache) == before
        else:
            cache.crop(step)
            text = text[..., : max(text.shape[-1] + step, 0)]
            if recording:
                from_start = from_start and text.shape[-1] <= KERNEL
                reachable = 0
        if change is not None and text.shape[-1]:
            cache, text = changed(cache, text, change)
        assert cache.is_croppable == (recording or text.shape[-1] == 0)
        for layer in cache.layers:
            for index in range(layer.number_of_states):
                check_window(layer.conv_states[index], text, recording)
        if text.shape[-1] and not recording:
            assert cache.nbytes() == cache.nbytes(used=True) == 3 * text.shape[0] * 3 * KERNEL * 8


def check_window(held, text, recording):
    if text.shape[-1] == 0:
        assert held is None
    elif recording:
        common = min(KERNEL, text.shape[-1])
        assert torch.equal(held[..., -common:], text[..., -common:])
    else:
        assert torch.equal(held, pad(text, (KERNEL, 0))[..., -KERNEL:])


def changed(cache, text, change):
    if change == "copy":
        return copy.deepcopy(cache), text
    if change == "pickle":
        return pickle.loads(pickle.dumps(cache)), text
    if change == "repeat" and text.shape[0] <= 4:
        cache.batch_repeat_interleave(2)
        return cache, text.repeat_interleave(2, dim=0)
    if change == "select":
        cache.batch_select_indices(torch.tensor([text.shape[0] - 1, 0]))
        return cache, text[[text.shape[0] - 1, 0]]
    rows = torch.arange(text.shape[0]).flip(0)
    cache.reorder_cache(rows)
    return cache, text[rows]


def test_crop_zero_frees_what_the_next_step_does_not_read():
    layer = conv_layer(recording=True)
    layer.update_conv_state(inputs(2, 20), conv_kernel_size=KERNEL)
    assert layer.nbytes() == 2 * 3 * 20 * 8
    layer.crop(0)
    assert layer.nbytes() == 2 * 3 * KERNEL * 8
    assert torch.equal(layer.conv_states[0], inputs(2, 20)[..., -KERNEL:])
    with pytest.raises(RuntimeError, match="only 0 tokens"):
        layer.crop(-1)


def test_a_crop_to_less_than_the_kernel_leaves_a_state_that_can_be_decoded_in_place():
    """transformers leaves a narrower state there, into which its own models then write a wrong window."""
    layer, text = conv_layer(recording=True), inputs(1, 6)
    layer.update_conv_state(text, conv_kernel_size=KERNEL)
    layer.crop(-4)
    layer.record_past = False  # as generate() does when it hands the cache back
    assert torch.equal(layer.conv_states[0], pad(text[..., :2], (2, 0)))
    seen = layer.update_conv_state(text[..., 2:3], conv_kernel_size=KERNEL)
    assert torch.equal(convolve(seen, 1), convolve(text[..., :3], 1))


def test_recording_that_starts_late_reaches_back_to_its_start():
    layer, text = conv_layer(), inputs(1, 9)
    layer.update_conv_state(text[..., :5], conv_kernel_size=KERNEL)
    layer.activate_past_recording()
    layer.update_conv_state(text[..., 5:], conv_kernel_size=KERNEL)
    with pytest.raises(RuntimeError, match="only 4 tokens"):
        layer.crop(-5)
    layer.crop(-4)
    assert torch.equal(layer.conv_states[0], text[..., 1:5])
    assert not layer.is_compileable  # a record grows


@pytest.mark.parametrize("recording", [False, True])
def test_a_recurrent_state_cannot_be_rolled_back_and_nothing_changes(recording):
    cache = Cache(layers=[DynamicLayer(), conv_layer(recording)])
    keys = torch.randn(1, 2, 5, 4)
    cache.crop(-3)  # an unused cache: nothing to do
    assert cache.is_croppable
    cache.update(keys, keys, 0)
    cache.update_conv_state(inputs(1, 5), 1, conv_kernel_size=KERNEL)
    cache.update_recurrent_state(torch.ones(1, 3, 2), 1)
    assert not cache.is_croppable
    for count in (-1, -99):
        with pytest.raises(RuntimeError, match="deepcopy"):
            cache.crop(count)
    with pytest.raises(ValueError, match="crop"):
        cache.crop(2)
    cache.crop(0)
    assert cache.get_seq_length() == 5 and torch.equal(cache.layers[0].keys, keys)
    assert torch.equal(cache.get_conv_state(1)[..., -KERNEL:], inputs(1, 5)[..., -KERNEL:])


@pytest.mark.parametrize("keep", [False, True])
def test_reset_is_as_new_and_another_batch_works(keep):
    layer = conv_layer(keep_buffers=keep)
    cache = Cache(layers=[layer])
    layer.update_conv_state(inputs(2, 6), conv_kernel_size=KERNEL)
    layer.update_recurrent_state(torch.ones(2, 3))
    addresses = [layer.conv_states[0].data_ptr(), layer.recurrent_states[0].data_ptr()]
    held = cache.nbytes()
    cache.reset()
    cache.reset()  # a second time changes nothing
    assert cache.get_conv_state(0) is None and cache.get_recurrent_state(0) is None
    assert not cache.has_previous_state(0) and cache.batch_size == -1 and cache.is_croppable
    assert cache.nbytes(used=True) == 0 and cache.nbytes() == (held if keep else 0)
    copied = copy.deepcopy(cache)
    assert copied.nbytes() == 0  # a copy is data
    seen = layer.update_conv_state(inputs(2, 2), conv_kernel_size=KERNEL)
    layer.update_recurrent_state(torch.full((2, 3), 2.0))
    assert torch.equal(seen, pad(inputs(2, 2), (2, 0)))
    if keep:
        assert addresses == [layer.conv_states[0].data_ptr(), layer.recurrent_states[0].data_ptr()]
    cache.reset()
    layer.update_conv_state(inputs(5, 6), conv_kernel_size=KERNEL)
    layer.update_recurrent_state(torch.zeros(5, 3))
    assert cache.batch_size == 5 and cache.nbytes() == 5 * 3 * (KERNEL * 8 + 4)


def test_reorder_keeps_addresses_and_reaches_every_state():
    layer = conv_layer(number_of_states=2)
    for index in range(2):
        layer.update_conv_state(inputs(3, 4, start=100 * index), index)
        layer.update_recurrent_state(torch.arange(6.0).view(3, 2) + index, index)
    addresses = [storage.buffer.data_ptr() for storage in layer.storages()]
    layer.reorder_cache(torch.tensor([2, 0, 0]))
    assert addresses == [storage.buffer.data_ptr() for storage in layer.storages()]
    for index in range(2):
        assert torch.equal(layer.conv_states[index], inputs(3, 4, start=100 * index)[[2, 0, 0]])
        assert torch.equal(layer.recurrent_states[index], (torch.arange(6.0).view(3, 2) + index)[[2, 0, 0]])


def test_gradients_pass_through_states_that_are_written_again():
    layer = conv_layer()
    weight = torch.tensor(2.0, dtype=torch.float64, requires_grad=True)
    total = 0
    for _ in range(3):
        seen = layer.update_conv_state(inputs(1, 2) * weight, conv_kernel_size=KERNEL)
        total = total + (seen**2).sum() + (layer.update_recurrent_state(seen.sum() * torch.ones(1, 2)) ** 2).sum()
    total.backward()
    assert weight.grad.item() > 0
    assert not copy.deepcopy(layer).conv_states[0].requires_grad


def test_refusals_are_clear_and_change_nothing():
    cache = Cache(layers=[DynamicLayer(), LinearLayer(number_of_states=2)])
    cache.update_conv_state(inputs(1, 4), 1)
    before = contents(cache)
    keys = torch.randn(1, 2, 3, 4)
    for pattern, call in [
        ("takes no keys", lambda: cache.update(keys, keys, 1)),
        ("layer 0 is a DynamicLayer", lambda: cache.update_conv_state(inputs(1, 1), 0)),
        ("layers that do: 1", lambda: cache.update_recurrent_state(torch.ones(1, 2), 0)),
        ("layer 0", lambda: cache.get_conv_state(0)),
        ("layer 0", lambda: cache.get_recurrent_state(0)),
        ("layer 0", lambda: cache.has_previous_state(0)),
        ("layers that do: none", lambda: cache.update_indexer(torch.ones(1, 2, 3), 1)),
        ("no 2", lambda: cache.update_conv_state(inputs(1, 1), 1, state_idx=2)),
        ("no 2", lambda: cache.get_conv_state(1, 2)),
        ("no -1", lambda: cache.get_recurrent_state(1, -1)),
        ("no 5", lambda: cache.has_previous_state(1, 5)),
        ("layer_idx=None", lambda: cache.update_conv_state(inputs(1, 1), None)),
        ("batch_repeat_interleave.3.", lambda: cache.update_conv_state(inputs(3, 1), 1)),
        (
            "config=model.config",
            lambda: Cache(layer_class_to_replicate=DynamicLayer).update_conv_state(inputs(1, 1), 0),
        ),
    ]:
        with pytest.raises(ValueError, match=pattern):
            call()
    assert contents(cache) == before
    assert cache.has_previous_state(1, 0) and not cache.has_previous_state(1, 1) and not cache.has_previous_state()
    assert not cache.has_previous_state(7) and not Cache(layers=[]).has_previous_state()


def test_states_can_be_set_by_index():
    layer = conv_layer(number_of_states=2)
    layer.conv_states[1] = inputs(1, 4)
    layer.recurrent_states[1] = torch.ones(1, 2)
    assert dict(layer.conv_states).keys() == {0, 1} and layer.conv_states[0] is None
    assert torch.equal(layer.conv_states[1], inputs(1, 4)) and layer.has_previous_state == {0: False, 1: True}
    for refused in (-1, 2):
        assert refused not in layer.conv_states and layer.conv_states.get(refused) is None
        with pytest.raises(KeyError):
            layer.conv_states[refused] = inputs(1, 4)
    layer.conv_states[1] = layer.recurrent_states[1] = None
    assert not any(layer.has_previous_state.values()) and layer.nbytes() == 0


def test_states_alone_answer_while_they_are_empty_and_refuse_to_guess_later():
    cache = Cache(layers=[LinearLayer(), LinearLayer()])
    assert cache.get_seq_length() == cache.get_query_offset() == 0 and cache.get_mask_sizes(3) == (3, 0)
    assert len(list(cache)) == 2
    cache.update_conv_state(inputs(1, 4), 0)
    for question in (cache.get_seq_length, cache.get_query_offset, lambda: cache.get_mask_sizes(1)):
        with pytest.raises(ValueError, match="no layer of this cache does"):
            question()
    with pytest.raises(ValueError, match="no keys and values; copy it"):
        list(cache)


def test_another_batch_than_an_empty_one_is_refused_with_a_hint():
    cache = Cache(layers=[LinearLayer()])
    cache.update_conv_state(inputs(0, 4), 0)
    with pytest.raises(ValueError, match="reset"):
        cache.update_conv_state(inputs(2, 4), 0)


@pytest.mark.parametrize("order", [[0, 1, 2], [1, 0, 2], [1, 2, 0]])
def test_a_text_that_does_not_fit_leaves_the_states_before_the_keys(order):
    """A model writes the states of its first layers before any layer is asked for room."""
    kinds = [LinearLayer(), StaticLayer(6), HybridLayer(LinearLayer(), StaticLayer(6))]
    cache = Cache(layers=[kinds[number] for number in order])

    def forward(tokens):
        for index, layer in enumerate(cache.layers):
            if hasattr(layer, "update_conv_state"):
                cache.update_conv_state(inputs(1, tokens), index, conv_kernel_size=3)
                cache.update_recurrent_state(torch.full((1, 2), float(tokens)), index)
            if not layer.is_linear:
                cache.update(torch.ones(1, 1, tokens, 2), torch.ones(1, 1, tokens, 2), index)

    forward(4)
    before = contents(cache)
    with pytest.raises(ValueError, match="static cache holds 6"):
        forward(3)
    assert contents(cache) == before
    forward(2)
    with pytest.raises(ValueError, match="static cache holds 6"):
        forward(1)
