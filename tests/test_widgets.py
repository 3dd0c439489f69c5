"""Widgets without a browser: values are set, buttons pressed, pages read. No model and no cache runs in a move."""

import re
import subprocess
import sys
from itertools import permutations

import ipywidgets
import pytest
import torch

import kvcourse as kv
from kvcourse import bill, show
from kvcourse.quantize import MaxRange

STEP = [6, -2, 2, 0, -1]


@pytest.fixture(scope="module")
def config():
    """Layer 0 full, layer 1 with a window of 4. No weights."""
    from transformers import MinistralConfig

    sizes = dict(hidden_size=16, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1, head_dim=8)
    kinds = ["full_attention", "sliding_attention"]
    return MinistralConfig(**sizes, layer_types=kinds, sliding_window=4, intermediate_size=16, vocab_size=11)


def full(config):
    return type(config)(**config.to_dict() | {"layer_types": ["full_attention"] * 2})


def words(text):
    """Token ids of a text: a number for each word, the same for the same word."""
    return [sum(ord(c) * 31**i for i, c in enumerate(word)) % 100_003 for word in text.split()]


REQUESTS = [
    {
        "clock": f"now {minute} ",
        "rules": "be kind and be short please ",
        "name": f"for {'ab'[minute % 2]} ",
        "story": " ".join(f"w{i}" for i in range(40)) + " ",
    }
    for minute in range(4)
]


def game(config):
    stories = {
        "window, recorded": show.story(config, STEP, 1, recording=True),
        "window": show.story(config, [3, -1, 2, -1], 1),
        "full": show.story(full(config), [6, -3, 0, -99]),
    }
    return show.StepThrough(stories)


def values():
    return torch.tensor([[((7 * t + 5 * c + 3 * t * c + c * c) % 13 - 6) / 4 for c in range(6)] for t in range(8)])


def knees():
    runs = {}
    for fetch in (0.5, 2):
        for depth in (0, 1):
            cache = kv.DynamicCache(offloading=True)
            cache.offloader.depth = depth
            with kv.emulated_device(10**9, 64 / fetch * 1000, latency=0, compute=1e-3) as device:
                for _ in range(2):
                    for layer in range(3):
                        cache.update(torch.zeros(1, 1, 1, 8), torch.zeros(1, 1, 1, 8), layer)
            runs[fetch, depth] = device.timeline
    return show.knee_explorer(runs)


def every(config):
    """name -> (widget, its outermost ipywidgets box)."""
    made = [game(config), show.PromptSorter(REQUESTS, words), show.OutlierExplorer(values())]
    return {type(widget).__name__: (widget, widget.box) for widget in made} | {"knee": (None, knees())}


def inside(box):
    """All controls of a box, boxes in boxes opened."""
    for child in getattr(box, "children", ()):
        yield from inside(child) if isinstance(child, ipywidgets.Box) else [child]


def page(widget):
    import html

    return html.unescape(re.sub(r"</?pre[^>]*>", "", widget._view.value))


def test_only_controls_that_work_by_keyboard_and_say_what_they_are(config):
    """Not lists: JupyterLab takes the arrow keys from them."""
    known = (
        ipywidgets.ToggleButton,
        ipywidgets.ToggleButtons,
        ipywidgets.Button,
        ipywidgets.Checkbox,
        ipywidgets.SelectionSlider,
        ipywidgets.IntSlider,
    )
    for name, (_, box) in every(config).items():
        found = [child for child in inside(box) if not isinstance(child, (ipywidgets.HTML, ipywidgets.Label))]
        assert len(found) >= 2, name
        for control in found:
            assert isinstance(control, known), (name, control)
            assert control.description, (name, control)
            if isinstance(control, (ipywidgets.SelectionSlider, ipywidgets.IntSlider)):
                assert control.continuous_update is False, name


def test_values_that_make_no_sense_cannot_be_entered(config):
    for name, (_, box) in every(config).items():
        for control in inside(box):
            if isinstance(control, ipywidgets.IntSlider):
                for value in (-1, 99):
                    control.value = value
                    assert control.min <= control.value <= control.max, name
            elif hasattr(control, "options"):
                before = control.value
                with pytest.raises(Exception, match="[Ii]nvalid|not found"):
                    control.value = "nonsense"
                assert control.value == before, name


def test_a_move_draws_and_computes_nothing(config, monkeypatch):
    calls = []
    tokenized = []

    def ids_of(text):
        tokenized.append(text)
        return words(text)

    step, sorter, outlier = game(config), show.PromptSorter(REQUESTS, ids_of), show.OutlierExplorer(values())
    boxes = [widget.box for widget in (step, sorter, outlier)] + [knees()]
    assert len(tokenized) == 24 * len(REQUESTS)
    for owner, method in (
        (torch.nn.Module, "__call__"),
        (kv.Cache, "update"),
        (kv.Cache, "crop"),
        (MaxRange, "quantize"),
        (MaxRange, "dequantize"),
        (bill, "common_prefix"),
    ):
        monkeypatch.setattr(owner, method, lambda *args, name=method, **kwargs: calls.append(name))
    moves = 0
    for box in boxes:
        for control in list(inside(box)):
            if isinstance(control, ipywidgets.Button):
                control.click(), control.click()
            elif isinstance(control, ipywidgets.IntSlider):
                control.value = control.min
            elif isinstance(control, (ipywidgets.ToggleButton, ipywidgets.Checkbox)):
                control.value = not control.value
            elif hasattr(control, "options"):
                control.index = len(control.options) - 1
            else:
                continue
            moves += 1
    assert moves > 20 and not calls and len(tokenized) == 24 * len(REQUESTS)
    show.story(config, [1])
    assert calls  # the counter would have seen it


def test_ipywidgets_is_loaded_when_a_widget_is_shown_and_not_before():
    code = (
        "import sys, torch, kvcourse.show as show\n"
        "w = show.OutlierExplorer(torch.eye(3))\n"
        "w.text()\n"
        "print('ipywidgets' in sys.modules)\n"
        "print('application/vnd.jupyter.widget-view+json' in w._repr_mimebundle_(), 'ipywidgets' in sys.modules)"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.split() == ["False", "True", "True"]


# Step through, with crop inside


def test_a_story_is_what_a_live_cache_held(config):
    moves = show.story(config, STEP, 1, recording=True)
    assert [m.event for m in moves] == ["read 6", "crop(-2)", "read 2", "crop(0)", "crop(-1)"]
    assert [m.after for m in moves] == [(0, 1, 2, 3, 4, 5), (1, 2, 3), (1, 2, 3, 4, 5), (3, 4, 5), (3, 4, 5)]
    assert [bool(m.refused) for m in moves] == [False] * 4 + [True] and "window of 4" in moves[-1].refused
    assert [m.new for m in moves] == [(0, 1, 2, 3, 4, 5), (), (4, 5), (), ()]
    assert all(b.before == a.after for a, b in zip(moves, moves[1:], strict=False))
    assert [m.after for m in show.story(full(config), [6, -3, -99])] == [(0, 1, 2, 3, 4, 5), (0, 1, 2), ()]


def test_guess_and_truth_stand_in_two_rows(config):
    w = game(config)
    w.box  # noqa: B018
    assert w.act.description == "read 6" and "truth" not in page(w)
    w.act.click()
    assert "Not this time: 0 of 6 boxes" in page(w) and w.act.description == "go on"
    w.act.click()
    for position in (1, 2):
        w.boxes[position].value = True
    w.act.click()
    rows = {line.split("│")[0].strip(): re.findall(r"\d+", line) for line in page(w).splitlines() if "│" in line}
    assert rows["held before"] == list("012345") and rows["your guess"] == list("12") and rows["truth"] == list("123")
    assert "Not this time: 5 of 6 boxes as you said." in page(w)


def test_only_boxes_that_may_remain_can_be_pressed_and_none_afterwards(config):
    w = game(config)
    w.box  # noqa: B018
    w.which.value = "window"
    assert [box.disabled for box in w.boxes] == [False] * 3 + [True] * 3 and w.refuses.disabled
    w.act.click()
    assert all(box.disabled for box in w.boxes)
    w.act.click()
    assert not w.refuses.disabled and w.act.description == "crop(-1)"
    assert [box.value for box in w.boxes] == [False] * 6


def test_who_expects_each_event_is_right_each_time_and_the_end_says_so(config):
    w = game(config)
    w.box  # noqa: B018
    for name, moves in w.stories.items():
        w.which.value = name
        for move in moves:
            if move.refused:
                w.refuses.value = True
            else:
                for position in move.after:
                    w.boxes[position].value = True
            w.act.click()
            assert "Right" in page(w), (name, move)
            w.act.click()
        assert f"Right in {len(moves)} of {len(moves)} steps." in page(w) and w.act.disabled
        w.again.click()
        assert w.place == 0 and not w.act.disabled and not w.guess


def test_a_refusal_and_a_wrong_guess_of_one(config):
    w = game(config)
    w.box  # noqa: B018
    w.place = 4
    w._set_controls()
    for position in (3, 4, 5):
        w.boxes[position].value = True
    w.act.click()
    assert "Not this time: it was refused, and nothing has changed: cannot remove 1" in page(w)
    w.again.click()
    w.place = 1
    w._set_controls()
    w.refuses.value = True
    w.act.click()
    assert "Not this time: it did not refuse." in page(w) and re.search(r"\(empty\) +it refuses", page(w))


def test_picture_and_text_of_a_story_have_the_same_steps(config):
    w = game(config)
    fig = w.picture()
    title = fig.texts[0].get_text().replace("\n", " ")
    assert title == "window, recorded: 3 tokens left after 5 steps, 1 of them refused"
    assert title in show.alt(fig) and "5 rows" in show.alt(fig)
    lines = w.text().splitlines()
    assert lines[3:8] == [
        "read 6               ██████",
        "crop(-2)             ·░░░··",
        "read 2               ·░░░╱╱",
        "crop(0)              ···░░░",
        "crop(-1), refused    ···░░░",
    ]
    assert "crop(-1) refused: cannot remove 1" in w.text()


def test_stories_that_are_empty_or_too_wide_are_refused(config):
    for stories in ({}, {"a": []}):
        with pytest.raises(ValueError, match="at least one move"):
            show.StepThrough(stories)
    with pytest.raises(ValueError, match="40 positions"):
        show.StepThrough({"a": show.story(config, [40])})


# The order of a prompt


def test_the_tokens_reused_are_those_of_the_bill_in_every_order():
    w = show.PromptSorter(REQUESTS, words)
    sums = {}
    for order in permutations(REQUESTS[0]):
        w.order = order
        prompts = [words("".join(request[part] for part in order)) for request in REQUESTS]
        for w.blocks, block in ((True, 16), (False, 1)):
            expected = [one.cached for one in bill.usage([(ids, 0) for ids in prompts], block)]
            assert w.reused() == expected, order
            sums[order, w.blocks] = sum(expected)
    for w.blocks in (True, False):
        assert w.best() == max(total for (_, blocks), total in sums.items() if blocks == w.blocks)
    assert sum(w.tokens()) == sum(map(len, prompts))


def test_a_part_moves_and_stays_chosen():
    w = show.PromptSorter(REQUESTS, words)
    w.box  # noqa: B018
    assert w.order == ("clock", "rules", "name", "story") and "0 of 200 tokens reused" in page(w)
    w.parts.value = "clock"
    w.earlier.click()  # it is the first already
    for place in (1, 2, 3, 3):
        w.later.click()
        assert w.order.index("clock") == place and w.parts.value == "clock" and w.parts.options == w.order
    assert w.order == ("rules", "name", "story", "clock")
    assert w.reused() == [0, 0, 48, 48] and "96 of 200 tokens reused" in page(w)
    w.parts.value = "name"
    w.later.click()
    assert w.order == ("rules", "story", "name", "clock") and w.reused() == [0, 32, 48, 48]
    assert "the best reuses 128" in page(w)
    w.whole.value = False
    assert w.reused()[1] == 47 and "whole" not in page(w)  # six words of rules, forty of story, "for"


def test_picture_and_text_show_the_same_tokens():
    w = show.PromptSorter(REQUESTS, words)
    w.order = ("rules", "story", "name", "clock")
    fig = w.picture()
    assert "128 of 200 tokens reused" in fig.texts[0].get_text().replace("\n", " ")
    assert "72 computed, 128 kept" in show.alt(fig)
    assert re.findall(r"request \d +[░█]+ +(\d+) of (\d+)", w.text()) == [
        ("0", "50"),
        ("32", "50"),
        ("48", "50"),
        ("48", "50"),
    ]


def test_requests_of_other_parts_are_refused():
    for requests, match in (
        ([], "two requests"),
        (REQUESTS[:1], "got 1 of 4"),
        ([{"a": "x"}] * 2, "2 to 5 parts"),
        ([*REQUESTS, {"clock": "x"}], "not so number 4"),
    ):
        with pytest.raises(ValueError, match=match):
            show.PromptSorter(requests, words)


# One outlier


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("grouping", ["per token", "per channel"])
def test_errors_are_those_of_the_format(whole, grouping):
    w = show.OutlierExplorer(values(), sizes=(0, 8))
    w.box  # noqa: B018
    w.bits_.value, w.whole_.value, w.grouping_.value = 4, whole, grouping
    w.token_.value, w.channel_.value, w.size_.value = 2, 5, 8
    usual = values().abs().mean()
    x = values()
    x[slice(None) if whole else 2, 5] += 8 * usual
    fmt = MaxRange(bits=4, grouping=grouping, group_size=6 if grouping == "per token" else 8)
    error = (fmt.dequantize(fmt.quantize(x[None, None]), torch.float32) - x).abs()[0, 0] / usual
    assert torch.allclose(w.errors(), error, atol=1e-6)
    mean = error.mean(1 if grouping == "per token" else 0)
    assert torch.allclose(torch.tensor(w.group_errors()), mean, atol=1e-6)
    shown = [float(n) for n in re.findall(r"(?:^error|\d\.\d\d).*", page(w), flags=re.M)[0].split() if "." in n]
    assert shown == [round(float(n), 2) for n in (mean if grouping == "per channel" else mean[:1])]


def test_who_pays():
    w = show.OutlierExplorer(values(), sizes=(0, 16))
    assert w.payers("per token", False) == [w.token] and w.payers("per channel", False) == [w.channel]
    assert w.payers("per token", True) == list(range(8)) and w.payers("per channel", True) == []
    assert re.findall(r"(\d) +\S+.*  pays$", w.text(), flags=re.M) and "1 of 8 groups pays" in w.text()
    w.size = 0
    assert not any(w.payers(g, whole) for g in ("per token", "per channel") for whole in (False, True))
    assert "no outlier" in w.text() and "[" not in w.text().split("error in")[0]


def test_the_picture_counts_who_pays():
    w = show.OutlierExplorer(values(), sizes=(0, 16))
    fig = w.picture()
    title = fig.texts[0].get_text().replace("\n", " ")
    assert title == (
        "2 bits, 16 times the usual size: one large value makes 1 of 8 groups pay per token, 1 of 6 per channel; "
        "a large channel 8 and 0"
    )
    frames = [len(ax.patches) for ax in fig.axes]
    assert frames == [1, 1, 8, 0] and title in show.alt(fig)
    assert torch.allclose(torch.tensor(fig.axes[2].images[0].get_array().data), w.errors("per token", True))
    fig.canvas.draw()
    texts = [*fig.texts, *(text for ax in fig.axes for text in ax.texts)]
    for text in texts:
        box = text.get_window_extent(fig.canvas.get_renderer())
        assert box.x0 >= 0 and box.y0 >= 0 and box.x1 <= fig.bbox.x1 and box.y1 <= fig.bbox.y1, text


def test_values_of_a_wrong_shape_or_sizes_are_refused():
    for wrong in (torch.zeros(3), torch.zeros(1, 5), torch.zeros(5, 30)):
        with pytest.raises(ValueError, match="2 to 12 each"):
            show.OutlierExplorer(wrong)
    with pytest.raises(ValueError, match="begin with 0"):
        show.OutlierExplorer(values(), sizes=(1, 2))
    with pytest.raises(ValueError, match="keeps 2, 4 bits"):
        show.OutlierExplorer(values(), bits=(3,))
