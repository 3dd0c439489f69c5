"""A chat on one cache: the words of no cache, whatever the template does to the history."""

import pytest
import torch
from transformers import GenerationConfig, Mamba2Config, Mamba2ForCausalLM

import kvcourse as kv

CONTENT = "message['content']"
QUESTIONS = ["How deep is it?", "And how wide?", "Who says so?"]


@pytest.fixture(scope="module")
def tiny():
    return kv.load("tiny")


def without_thinking(tokenizer):
    """The template, changed so that it gives back only what stands behind </think>."""
    return tokenizer.chat_template.replace(CONTENT, CONTENT + ".split('</think>')[-1]")


def without_a_cache(model, turn, new=12):
    prompt = turn.ids[:, : turn.prompt]
    options = {"do_sample": False, "max_new_tokens": new, "use_cache": False}
    return model.generate(prompt, attention_mask=torch.ones_like(prompt), **options)


def make(kind, model):
    return {
        "dynamic": lambda: None,
        "static": lambda: kv.StaticCache(model.config, 512),
        "offloaded": lambda: kv.DynamicCache(config=model.config, offloading=True),
    }[kind]()


@pytest.mark.parametrize("kind", ["dynamic", "static", "offloaded"])
def test_each_turn_feeds_what_is_new_and_answers_as_without_a_cache(tiny, kind):
    model, tokenizer = tiny
    chat = kv.Chat(model, tokenizer, make(kind, model), system="Be short.")
    held = 0
    for question in QUESTIONS:
        with kv.measure.count_positions(model) as counted:
            turn = chat.say(question, max_new_tokens=12)
        assert turn.ids.equal(without_a_cache(model, turn))
        assert (turn.saved, turn.rolled_back, turn.note) == (held, 0, "")
        assert counted[0] == turn.fed and set(counted[1:]) == {1}
        held = turn.ids.shape[1] - 1  # all but the last token written
        assert chat.cache.get_seq_length() == held
    assert [message["role"] for message in chat.messages] == ["system", *["user", "assistant"] * 3]
    assert turn.fed < turn.prompt / 2


def test_a_template_that_drops_thinking_is_found_by_ids_and_repaired(tiny):
    model, tokenizer = tiny
    chat = kv.Chat(model, tokenizer, chat_template=without_thinking(tokenizer))
    first = chat.say(QUESTIONS[0], begin="<think>Deep water.</think>", max_new_tokens=12)
    assert "<think>" in tokenizer.decode(first.ids[0]) and "<think>" in chat.messages[-1]["content"]
    second = chat.say(QUESTIONS[1], max_new_tokens=12)
    assert "<think>" not in tokenizer.decode(second.ids[0])
    # usable is what stands before the thinking: the first prompt without the words that the answer began with
    assert second.saved == first.prompt - len("<think>Deep water.</think>")
    assert second.rolled_back == first.ids.shape[1] - 1 - second.saved
    assert second.ids.equal(without_a_cache(model, second))


def test_a_window_that_cannot_go_back_starts_again_behind_the_prompt(tiny):
    _, tokenizer = tiny
    model, _ = kv.load("tiny", sliding_window=16)
    chat = kv.Chat(model, tokenizer, chat_template=without_thinking(tokenizer))
    first = chat.say(QUESTIONS[0], begin="<think>Deep water.</think>", max_new_tokens=12)
    second = chat.say(QUESTIONS[1], max_new_tokens=12)
    assert second.note.endswith("started again from an empty cache")  # the thinking stands before the copy
    third = chat.say(QUESTIONS[2], max_new_tokens=12)
    assert third.note == "" and third.saved == second.ids.shape[1] - 1
    chat.messages[-1]["content"] = "Nobody."
    fourth = chat.say("Really?", max_new_tokens=12)
    assert fourth.note.endswith("started again from the safe copy") and fourth.saved == third.prompt - 1
    for turn in (first, second, third, fourth):
        assert turn.ids.equal(without_a_cache(model, turn))


def test_messages_may_be_edited_between_turns(tiny):
    model, tokenizer = tiny
    chat = kv.Chat(model, tokenizer)
    chat.say(QUESTIONS[0], max_new_tokens=12)
    chat.messages[0]["content"] = "How cold is it?"
    turn = chat.say(QUESTIONS[1], max_new_tokens=12)
    assert (
        turn.saved == len("X") + len("user\nHow ") and turn.rolled_back > 0
    )  # one token a letter, one for <|im_start|>
    assert turn.ids.equal(without_a_cache(model, turn))


def test_an_interrupted_turn_leaves_no_trace(tiny, monkeypatch):
    model, tokenizer = tiny
    chat = kv.Chat(model, tokenizer)
    chat.say(QUESTIONS[0], max_new_tokens=12)
    messages, generate = list(chat.messages), model.generate

    def interrupted(**inputs):
        generate(**inputs | {"max_new_tokens": 3})
        raise KeyboardInterrupt

    monkeypatch.setattr(model, "generate", interrupted)
    with pytest.raises(KeyboardInterrupt):
        chat.say(QUESTIONS[1])
    monkeypatch.undo()
    assert chat.messages == messages and chat.cache.get_seq_length() == 0
    turn = chat.say(QUESTIONS[1], max_new_tokens=12)
    assert turn.fed == turn.prompt and turn.ids.equal(without_a_cache(model, turn))


def test_beams_are_refused_before_anything_happens(tiny):
    model, tokenizer = tiny
    chat = kv.Chat(model, tokenizer)
    chat.say(QUESTIONS[0], max_new_tokens=12)
    held = chat.cache.get_seq_length()
    for options in ({"num_beams": 2}, {"num_return_sequences": 2, "do_sample": True}):
        with pytest.raises(ValueError, match="batch_repeat_interleave"):
            chat.say(QUESTIONS[1], **options)
    assert len(chat.messages) == 2 and chat.cache.get_seq_length() == held


def test_a_turn_is_one_readable_line():
    from kvcourse.chat import Turn

    ids = torch.zeros(1, 30, dtype=torch.long)
    assert repr(Turn("Paris.", ids, 28, 20, 0)) == "prompt of 28: 20 saved, 8 fed; reply 'Paris.'"
    assert repr(Turn("Paris.", ids, 28, 20, 4)) == "prompt of 28: 20 saved, 8 fed, 4 rolled back; reply 'Paris.'"


def test_a_chat_of_states_alone_reads_each_token_once(tiny):
    _, tokenizer = tiny
    torch.manual_seed(0)
    sizes = dict(hidden_size=32, state_size=8, num_heads=4, head_dim=16, n_groups=1, num_hidden_layers=2, chunk_size=8)
    config = Mamba2Config(vocab_size=len(tokenizer), **sizes, pad_token_id=0, eos_token_id=None, bos_token_id=None)
    model = Mamba2ForCausalLM(config).eval()
    chat = kv.Chat(model, tokenizer, chat_template=tiny[1].chat_template)
    for question in QUESTIONS:
        with kv.measure.count_positions(model) as counted:
            turn = chat.say(question, max_new_tokens=6)
        assert sum(counted) == turn.fed + 5 and turn.ids.equal(without_a_cache(model, turn, 6))
        expected = kv.DynamicCache(config=config)
        with torch.no_grad():
            model(turn.ids[:, :-1], cache=expected)
        for index in range(2):
            torch.testing.assert_close(
                chat.cache.get_recurrent_state(index), expected.get_recurrent_state(index), atol=1e-4, rtol=1e-4
            )


def test_a_generation_config_decides_and_only_ids_may_come_back(tiny):
    model, tokenizer = tiny
    chat = kv.Chat(model, tokenizer)
    turn = chat.say(QUESTIONS[0], generation_config=GenerationConfig(max_new_tokens=3))
    assert turn.ids.shape[1] == turn.prompt + 3
    held = chat.cache.get_seq_length()
    with pytest.raises(ValueError, match="return_dict_in_generate"):
        chat.say(QUESTIONS[1], return_dict_in_generate=True)
    assert chat.cache.get_seq_length() == held and len(chat.messages) == 2
