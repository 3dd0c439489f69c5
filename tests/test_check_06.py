"""What the checks of lessons 05 to 07 stand on: the logs are true, and the package is whole again afterwards."""

import pytest

import kvcourse as kv
from kvcourse.check.reserved import Reserved, reserved

FRANCE, ITALY, JAPAN = "What is the capital of France?", "And of Italy?", "And of Japan?"
PARIS, ROME = "The capital of France is Paris.", "The capital of Italy is Rome."


def tokens(real, *messages):
    chat = kv.Chat(*real)
    roles = ("user", "assistant", "user", "assistant", "user")
    return chat.prompt_ids([{"role": r, "content": m} for r, m in zip(roles, messages, strict=False)]).shape[1]


def test_the_numbers_in_the_logs_are_those_of_the_template(real):
    lines = {letter: log.lines for letter, log in kv.check.LOGS.items()}
    for letter, answer in (("A", PARIS), ("B", ROME)):
        wanted = [
            tokens(real, FRANCE),
            tokens(real, FRANCE, PARIS, ITALY),
            tokens(real, FRANCE, PARIS, ITALY, answer, JAPAN),
        ]
        for line, prompt in zip(lines[letter][::2], wanted, strict=True):
            assert f"prompt {prompt} tokens" in line
    long = "What is the capital of Italy?"
    thinking = f"<think>A city in France.</think>{PARIS}"
    assert f"prompt {tokens(real, FRANCE, PARIS, long)} tokens" in lines["C"][2]
    assert f"prompt would have {tokens(real, FRANCE, thinking, long)};" in kv.check.LOGS["C"].evidence.replace(
        "the ", ""
    )


def test_log_lines_follow_from_one_another():
    for log in kv.check.LOGS.values():
        held = 0
        for asked, answered in zip(log.lines[::2], log.lines[1::2], strict=True):
            numbers = [
                int(word)
                for word in asked.replace(",", " ").replace(";", " ").replace(":", " ").split()
                if word.isdigit()
            ]
            _, prompt, cache, fed = numbers[:4]
            text, after = (
                int(part.split()[0]) for part in (answered.split("now text ")[1], answered.split("cache ")[1])
            )
            assert cache == held
            assert after == cache + fed + text - prompt - 1  # of the answer, the last token is not fed
            held = after


def test_what_a_task_builds_is_closed_and_open_again():
    original = kv.common_prefix
    with reserved(common_prefix="prefix"), pytest.raises(Reserved, match="common_prefix"):
        kv.common_prefix([1], [1])
    assert kv.common_prefix is original and kv.common_prefix([1, 2], [1, 3]) == 1
