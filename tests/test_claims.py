"""Every claim that the course makes has a cell that measures it, and every goal a task or a cell that tests it.

A claim names the lesson and words from the output of the cell that shows it. When a lesson is rewritten and a claim
loses its cell, the test says which one.
"""

import json
import re
from pathlib import Path

import pytest

from kvcourse.check import TASKS

LESSONS = {path.stem[:2]: path for path in sorted((Path(__file__).parent.parent / "notebooks").glob("[0-9]*.ipynb"))}

CLAIMS = {  # section: {claim: (lesson, pattern in the output of one cell)}
    "why cache": {
        "positions, dot products and bytes are three counts": ("01", r"820 positions, 22,140 dot products, 0 bytes"),
        "with a cache they grow otherwise": ("01", r"40 positions, 820 dot products, 1,280 bytes held"),
        "old keys and values are unchanged to rounding": ("01", r"layer 0 unchanged to the last bit: True"),
        "the memory that a cache costs": ("02", r"524,288 bytes a token; formula agrees: True"),
    },
    "same or not the same": {
        "largest difference in three formats": ("02", r"bfloat16.*\n.*float16.*\n.*float32"),
        "rounding is told from a fault": ("02", r"fault: the difference stays"),
    },
    "default cache": {
        "one entry a token": ("02", r"one new entry a step"),
        "the same tokens as without, passed in or by name": ("02", r"all four the same: True"),
        "stops growing on sliding layers": ("04", r"all sliding +1,474,560 +2,903,040 +2,903,040 +2,903,040"),
        "stops growing on chunked layers": ("04", r"chunked layer \[12, 13, 14\]"),
    },
    "sliding and chunked": {
        "never more than the window, W - 1 between steps": ("04", r"never more than 3 old tokens are read"),
        "mask sizes and offsets": ("04", r"3 new: 6 keys, positions 5 to 10"),
    },
    "fixed size": {
        "one graph while it fills": ("08", r"1 graph for 60 steps of two texts"),
        "a growing cache takes a second one": ("08", r"transformers 1 2 2 2"),
        "share of attention on masked slots": ("08", r"counted 76\.6%, formula 76\.6%"),
        "short texts in a large static cache waste memory": ("08", r"40 tokens: 23,592,960 held, 921,600 used"),
    },
    "tensors on the CPU": {
        "shapes that enter forward": ("08", r"forward gets +attention_mask \(2, 1, 1, 64\), input_ids \(2, 1\)"),
        "the graph count": ("08", r"whole text +graphs: 4"),
        "output follows the input": ("08", r"ids on cpu \| result on cpu"),
    },
    "offloading": {
        "about one layer resident, and the one fetched ahead": ("09", r"offloaded: +230,400 bytes on the device"),
        "overlap hides the transfer while it is shorter": ("09", r"Fast link: 6 ms a step, no waiting"),
        "throughput against context, new tokens and beams": ("09", r"800 new, 1 beams: \d\.\d times as long"),
        "only new tokens are written back": ("09", r"1,000 tokens: 1,920,000 bytes in, 1,536 bytes out"),
    },
    "memory runs out": {
        "many beams fail first and then succeed": ("10", r"second attempt: begins at 0 bytes"),
        "the same tokens": ("10", r"20 answers, all the same: True"),
        "other errors pass": ("10", r"'ValueError': 1"),
    },
    "quantized": {
        "bytes against the formula": ("12", r"500 tokens: .* \[True, True\]"),
        "perplexity against bits": ("12", r"hqq 2  perplexity"),
        "latency against bits": ("12", r"hqq 4:? +\d+ ms"),
        "short contexts do not gain": ("12", r"100 tokens, hqq +4,608,000 bytes of +4,608,000"),
        "what a shorter residual saves and costs": ("12", r"a residual of 128: .* times the bytes"),
        "why the axis matters": ("12", r"with keys per channel, \d+ with keys per token"),
    },
    "encoder-decoder": {
        "cross-attention is computed once": ("13", r"'cross': 12"),
        "self-attention grows": ("13", r"39,936 text"),
    },
    "states": {"constant bytes": ("14", r"21,504")},
    "conversations": {
        "tokens recomputed a turn, with and without": ("06", r"turn 3: prompt read 81 tokens anew, 15 on one cache")
    },
    "crop": {"the picture, from live caches": ("05", r"rolled back")},
    "prefixes": {
        "time to the first token": ("07", r"s without, .* s with the prefix"),
        "copies stay independent": ("07", r"original untouched: True"),
        "which edits leave how much": ("07", r"front: the clock +6 of 19 tokens usable"),
        "the seam between tokens": ("07", r"seam mended"),
    },
    "which when": {"every figure measured": ("15", r"57,120")},
}

GOALS = {  # lesson: for each goal, the tasks that test it, or a pattern as above
    "00": [r"49,152 scores", r"= 2,028", r"Measured: 2,028"],
    "01": [["01a"], ["01c"], ["01b", "01d"]],
    "02": [["02c", "02d"], ["02b", "02c"], r"fault: the difference stays"],
    "03": [["03a"], ["03b"], ["03c"]],
    "04": [["04a", "04d"], ["04b"], ["04c"]],
    "05": [["05a"], ["05b"], ["05c"]],
    "06": [["06b"], ["06b", "06d"], ["06a", "06c"]],
    "07": [["07a"], ["07b", "07c"], ["07c", "07d"]],
    "08": [["08a"], ["08b"], ["08c"]],
    "09": [["09a"], ["09b"], ["09c"]],
    "10": [["10a"], ["10a"], ["10b"]],
    "11": [["11a"], ["11b"], ["11c", "11d"]],
    "12": [["12a"], ["12b"], ["12c"]],
    "13": [["13a"], ["13a"], ["13b"]],
    "14": [["14a", "14b"], r"\b21,504\b", ["14c"]],
    "15": [["15a", "15b"], r"27 of 176 in blocks of 16", ["15c"]],
}


def outputs(lesson):
    """The text outputs of a lesson, one string a code cell."""
    found = []
    for cell in json.loads(LESSONS[lesson].read_text(encoding="utf-8"))["cells"]:
        parts = [o.get("text") or o.get("data", {}).get("text/plain", "") for o in cell.get("outputs", [])]
        found.append("".join("".join(part) for part in parts))
    return found


def shown(lesson, pattern):
    return any(re.search(pattern, text) for text in outputs(lesson))


@pytest.mark.parametrize(
    ("section", "claim"), [(section, claim) for section, claims in CLAIMS.items() for claim in claims]
)
def test_each_claim_has_a_cell_that_measures_it(section, claim):
    lesson, pattern = CLAIMS[section][claim]
    assert shown(lesson, pattern), f"no cell of lesson {lesson} prints {pattern!r} any more"


@pytest.mark.parametrize("lesson", LESSONS)
def test_each_goal_has_a_task_or_a_cell_that_tests_it(lesson):
    header = "".join(json.loads(LESSONS[lesson].read_text(encoding="utf-8"))["cells"][0]["source"])
    goals = [line for line in header.splitlines() if line.startswith("- *")]
    assert len(goals) == len(GOALS[lesson]) == 3
    for goal, test in zip(goals, GOALS[lesson], strict=True):
        if isinstance(test, str):
            assert shown(lesson, test), f"lesson {lesson}, {goal}: no cell prints {test!r}"
        else:
            assert all(task in TASKS for task in test), f"lesson {lesson}, {goal}: one of {test} is no task"
