"""Pictures: text letter by letter, the rows of the strip from snapshots, and figures whose numbers are their data's."""

import re
import subprocess
import sys
from itertools import combinations

import numpy as np
import pytest
from matplotlib.colors import to_hex
from matplotlib.patches import Rectangle
from matplotlib.text import Text

from kvcourse import show
from kvcourse.show.picture import ACCENT, DARK, LIGHT

SPEC_PICTURE = """\
                    cached positions
                    ┌───┬───┬───┬───┬───┬───┐
before crop(-3)     │ 0 │ 1 │ 2 │ 3 │ 4 │ 5 │
                    └───┴───┴───┴───┴───┴───┘
                                ╰─────┬─────╯
                                 rolled back

after crop(-3)
                    ┌───┬───┬───┐
full attention      │ 0 │ 1 │ 2 │    keeps the whole prefix
                    └───┴───┴───┘
                            ┌───┐
sliding_window=2            │ 2 │    keeps sliding_window - 1
                            └───┘"""


class FakeCache:
    """One layer that keeps the last `window - 1` positions between steps (all of them without a window)."""

    def __init__(self, window=None):
        self.window, self.length, self.held = window, 0, []

    def positions(self, layer_idx):
        assert layer_idx == 7  # the layer that the recorder was asked for
        return list(self.held)

    def nbytes(self, device=None, used=False):
        return len(self.held)

    def forward(self, n):
        self.length += n
        first = 0 if self.window is None else max(0, self.length - self.window + 1)
        self.held = list(range(first, self.length))

    def crop(self, n):
        self.length += n
        self.held = [p for p in self.held if p < self.length]


def decoded(prompt, new, window=None):
    """Steps of a run that reads a prompt and then `new - 1` tokens, one a step."""
    cache = FakeCache(window)
    recorder = show.Recorder(cache, 7)
    for i, n in enumerate([prompt] + [1] * (new - 1)):
        cache.forward(n)
        recorder.step(f"token {i}" if i else "prompt")
    return recorder.steps


def uncached(prompt, new):
    recorder = show.Recorder()
    for i in range(new):
        recorder.step(f"step {i + 1}", computed=range(prompt + i))
    return recorder.steps


# ---------------------------------------------------------------- text boxes


def test_the_picture_of_the_specification_letter_by_letter():
    drawn = show.crop_picture(
        before=[0, 1, 2, 3, 4, 5],
        after={"full attention": [0, 1, 2], "sliding_window=2": [2]},
        removed=3,
        notes={"full attention": "keeps the whole prefix", "sliding_window=2": "keeps sliding_window - 1"},
    )
    assert drawn == SPEC_PICTURE


@pytest.mark.parametrize("first,last,removed", [(0, 11, 1), (7, 13, 2), (98, 104, 7), (3, 3, 1)])
def test_a_position_is_in_the_same_column_everywhere(first, last, removed):
    before = list(range(first, last + 1))
    kept = before[: len(before) - removed]
    lines = show.crop_picture(before, {"full": kept, "window": kept[-2:], "a long label": kept[:1]}, removed).split(
        "\n"
    )
    columns = {}
    for line in lines:
        if "│" not in line:
            continue
        for found in re.finditer(r"\d+", line[line.index("│") :]):
            columns.setdefault(int(found.group()), set()).add(line.index("│") + found.end())
    assert sorted(columns) == before and all(len(ends) == 1 for ends in columns.values())
    bracket = next(line for line in lines if "╰" in line)
    row = lines[2]
    under = row[bracket.index("╰") : bracket.index("╯") + 1]
    assert [int(n) for n in re.findall(r"\d+", under)] == before[-removed:]
    assert under[0] == under[-1] == "│"  # the bracket reaches from edge to edge


def test_every_box_has_four_corners_and_gaps_stay_open():
    top, middle, bottom = show.box_rows({"sinks": [0, 1, 5]}).split("\n")
    assert middle == "sinks    │ 0 │ 1 │           │ 5 │"
    assert top == "         ┌───┬───┐           ┌───┐"
    assert bottom == "         └───┴───┘           └───┘"


def test_crop_zero_and_a_crop_that_empties():
    zero = show.crop_picture([0, 1], {"full": [0, 1]}, 0)
    assert "before crop(0)" in zero and "after crop(0)" in zero and "╰" not in zero
    gone = show.crop_picture([0, 1], {"full": []}, 5)
    assert "before crop(-5)" in gone and "(empty)" in gone
    assert gone.split("\n")[4].strip() == "╰───┬───╯"


def test_the_bracket_counts_tokens_not_boxes():
    """Sinks 0 and 1 stay; crop(-2) rolls back 8 and 9, whatever lies between."""
    lines = show.crop_picture([0, 1, 8, 9], {"sinks": [0, 1]}, 2).split("\n")
    assert [int(n) for n in re.findall(r"\d", lines[2][lines[4].index("╰") :])] == [8, 9]


@pytest.mark.parametrize(
    "positions,words",
    [([2, 1], "ascend"), ([1, 1], "ascend"), ([-1, 0], "negative"), ([0.5], "whole"), ([0, 99], "fit")],
)
def test_bad_positions_are_refused_in_words(positions, words):
    with pytest.raises(ValueError, match=words):
        show.box_rows({"layer": positions})
    with pytest.raises(ValueError, match=words):
        show.crop_picture(positions, {"layer": []}, 1)


def test_other_bad_arguments_are_refused():
    for removed in (-3, 1.5, True):
        with pytest.raises(ValueError, match="removed"):
            show.crop_picture([0], {"full": [0]}, removed)
    with pytest.raises(ValueError, match="'ful'"):
        show.crop_picture([0], {"full": [0]}, 0, {"ful": "a note for a row that is not there"})
    for empty in (lambda: show.box_rows({}), lambda: show.crop_picture([0], {}, 0), lambda: show.strip_text([])):
        with pytest.raises(ValueError):
            empty()
    with pytest.raises(ValueError, match="known: computed, read"):
        show.Step("a", {0: "cached"})
    with pytest.raises(ValueError, match="negative"):
        show.Step("a", {-1: "read"})


# ---------------------------------------------------------------- steps and the text twin


def test_a_growing_cache_reads_all_and_computes_one():
    steps = decoded(3, 3)
    assert steps[0].marks == {0: "computed", 1: "computed", 2: "computed"}
    assert steps[2].marks == {0: "read", 1: "read", 2: "read", 3: "read", 4: "computed"}


@pytest.mark.parametrize("window", [2, 3, 4, 9])
def test_a_window_reads_window_minus_one_and_the_rest_is_dropped(window):
    for step, length in zip(decoded(6, 5, window), range(6, 11), strict=True):
        of = {mark: [p for p, m in step.marks.items() if m == mark] for mark in show.MARKS}
        assert sorted(step.marks) == list(range(length))  # every position of the past has one mark
        if step.label == "prompt":
            assert of["computed"] == list(range(6))  # computed, even those that the window dropped at once
        else:
            assert of["computed"] == [length - 1]
            assert of["read"] == list(range(max(0, length - window), length - 1))


def test_a_crop_drops_then_the_same_positions_are_recomputed():
    cache = FakeCache()
    recorder = show.Recorder(cache, 7)
    cache.forward(6)
    recorder.step("prompt")
    cache.crop(-3)
    recorder.step("crop(-3)")
    cache.forward(2)
    recorder.step("two tokens")
    assert recorder.steps[1].marks == dict.fromkeys([0, 1, 2], "read") | dict.fromkeys([3, 4, 5], "dropped")
    assert recorder.steps[2].marks == dict.fromkeys([0, 1, 2], "read") | dict.fromkeys([3, 4], "recomputed")


def test_without_a_cache_all_is_computed_again():
    steps = uncached(5, 20)
    assert show.count(steps, "computed", "recomputed") == sum(range(5, 25)) == 290
    assert show.count(steps, "computed") == 24 and show.count(steps, "read", "dropped") == 0


def test_a_layer_that_holds_nothing_needs_to_be_told():
    cache = FakeCache(window=1)
    recorder = show.Recorder(cache, 7)
    for i in range(3):
        cache.forward(1)
        recorder.step(f"{i}", computed=[i])
    assert recorder.steps[2].marks == {0: "dropped", 1: "dropped", 2: "computed"}


def test_the_text_twin_letter_by_letter():
    assert show.strip_text(decoded(6, 3, window=4)) == (
        "position    0    5\n"
        "prompt      ██████\n"
        "token 1     ···░░░█\n"
        "token 2     ····░░░█\n"
        "\n"
        "█ computed now    ░ kept, read from the cache    · dropped"
    )
    row = show.Step("all", {10: "recomputed", 11: "dropped", 13: "offloaded", 14: "quantized", 15: "computed"})
    assert show.strip_text([row]).split("\n")[:2] == ["position    10   15", "all         ╱· ▒▄█"]


def test_text_twin_and_figure_count_the_same():
    steps = [s.with_mark("quantized", [0, 1]) if i else s for i, s in enumerate(decoded(4, 4))]
    rows = "\n".join(line[12:] for line in show.strip_text(steps).split("\n")[1:-2])
    fig = show.strip(steps, title="{quantized} quantized, {read} read, {computed} computed")
    expected = [rows.count(show.MARKS[mark][0]) for mark in ("quantized", "read", "computed")]
    assert expected == [6, 9, 7]
    assert [int(n) for n in re.findall(r"\d+", title_of(fig))] == expected
    half = [p for p in boxes(fig.axes[0]) if p.get_height() < 0.5]
    assert len(half) == expected[0]


# ---------------------------------------------------------------- figures


def title_of(fig):
    return fig.texts[0].get_text().replace("\n", " ")


def boxes(ax, colour=None, hatched=None):
    found = [p for p in ax.patches if type(p) is Rectangle]
    if colour is not None:
        found = [p for p in found if to_hex(p.get_facecolor()) == colour and not p.get_hatch()]
    return [p for p in found if hatched is None or bool(p.get_hatch()) == hatched]


@pytest.mark.parametrize("prompt,new", [(5, 20), (6, 1), (3, 7)])
def test_staircase_title_is_the_number_of_boxes(prompt, new):
    fig = show.staircase(uncached(prompt, new), decoded(prompt, new))
    drawn = [len(boxes(ax, DARK)) + len(boxes(ax, hatched=True)) for ax in fig.axes[:2]]
    assert drawn == [sum(range(prompt, prompt + new)), prompt + new - 1]
    assert [int(n.replace(",", "")) for n in re.findall(r"[\d,]*\d", title_of(fig))] == drawn
    assert title_of(fig) in show.alt(fig)


def test_long_strips_join_neighbours_but_count_positions():
    fig = show.staircase(uncached(250, 8), decoded(250, 8))
    assert title_of(fig) == "2,028 positions computed without a cache, 257 with one"
    widths = sum(round(p.get_width() + 0.16) for ax in fig.axes[:1] for p in boxes(ax))
    assert widths == 2028 and len(fig.axes[0].patches) < 20


def test_a_crop_keeps_but_reads_nothing():
    cache = FakeCache()
    recorder = show.Recorder(cache, 7)
    for n in (4, 1):
        cache.forward(n)
        recorder.step("forward")
    cache.crop(-2)
    recorder.step("crop(-2)")
    fig = show.strip(recorder.steps)
    assert title_of(fig) == "5 positions computed, 4 read from the cache"
    assert len(boxes(fig.axes[0], LIGHT)) == 4 + 3 and "7 kept, 2 dropped" in show.alt(fig)
    assert title_of(show.strip(recorder.steps[-1:])) == "5 positions, 3 kept, 2 dropped"


def test_offloaded_boxes_stand_outside_the_device():
    steps = [show.Step("a", {0: "offloaded", 1: "read", 2: "offloaded"})]
    ax = show.strip(steps).axes[0]
    frame = next(p for p in ax.patches if type(p) is not Rectangle)
    right = frame.get_x() + frame.get_width()
    outside = [p for p in boxes(ax) if p.get_x() > right]
    assert len(outside) == 2 and all(p.get_linestyle() not in ("solid", "-") for p in outside)
    assert "device" in {t.get_text() for t in ax.texts}


def test_the_bracket_counts_what_the_last_row_keeps():
    for window in (3, 5):
        words = [t.get_text() for t in show.strip(decoded(8, 4, window), bracket="W - 1").axes[0].texts]
        assert f"{window - 1} = W - 1" in words


@pytest.mark.parametrize("as_list", [True, False])
def test_ripple_title_is_the_number_of_filled_boxes(as_list):
    changed = np.zeros((6, 20), dtype=bool)
    changed[0, 2] = True
    changed[1:, 2:] = True
    fig = show.ripple(changed.tolist() if as_list else changed)
    ax = fig.axes[0]
    layer_0, deeper, same = (len(boxes(ax, colour)) for colour in (ACCENT, DARK, LIGHT))
    assert (layer_0, deeper, same) == (1, 5 * 18, 6 * 20 - 91)
    assert title_of(fig) == f"Keys change at {layer_0} position in layer 0, at {deeper // 5} in every deeper layer"


def test_ripple_says_other_shapes_of_change():
    assert title_of(show.ripple([[0, 0], [0, 0]])) == "No key changed in any layer"
    assert title_of(show.ripple([[1, 1, 0]])) == "Keys change at 2 positions in layer 0"
    assert title_of(show.ripple([[0, 1], [0, 1], [1, 1]])).endswith("at 1 to 2 in every deeper layer")
    for bad in ([], [True], [[]]):
        with pytest.raises(ValueError, match="layers, positions"):
            show.ripple(bad)


MODELS = [
    show.ModelMemory("small", 1000 * 2**20, 2**17),  # 8,000 tokens
    show.ModelMemory("large", 2**38, 2**18),  # 1,048,576 tokens
    show.ModelMemory("odd", 269_030_016, 23_040),
]


def test_ruler_marks_lie_where_cache_and_weights_are_equal():
    assert [m.meeting for m in MODELS] == [8000, 2**20, 11_677]
    fig = show.memory_ruler(MODELS, contexts=(1024, 8192))
    assert title_of(fig) == "At 8,192 tokens the cache outweighs the weights in 1 of 3 models"
    lines = fig.axes[0].lines
    dots = [line.get_xdata() for line in lines if line.get_marker() == "o"]
    bars = [line.get_xdata() for line in lines if to_hex(line.get_color()) == ACCENT]
    for model, dot, bar in zip(MODELS, dots, bars, strict=True):
        assert np.allclose(np.array(dot) * 2**30, [1024 * model.bytes_per_token, 8192 * model.bytes_per_token])
        assert np.allclose(np.array(bar) * 2**30, model.weight_bytes)
    words = " ".join(t.get_text() for t in fig.axes[0].texts)
    assert "= cache of 11,677 tokens" in words and "= cache of 8,000 tokens" in words
    assert "small at 8,000 tokens" in show.alt(fig)
    assert title_of(show.memory_ruler(MODELS[:1], [16_000])).endswith("the cache of small is 2 times its weights")


def test_price_title_and_proportional_line_come_from_the_measurement():
    fig = show.price_of_a_forward([1, 8, 64], [0.125, 0.15, 0.35])
    assert title_of(fig) == "64 times the tokens, 2.8 times the wait"
    straight = next(line for line in fig.axes[0].lines if line.get_marker() != "o")
    assert np.allclose(straight.get_ydata(), [0.125, 1.0, 8.0])
    assert "125 ms" in show.alt(fig) and "350 ms" in show.alt(fig)
    for tokens, seconds in (([1], [1.0]), ([1, 2], [1.0]), ([2, 1], [1.0, 1.0]), ([1, 2], [0.0, 1.0])):
        with pytest.raises(ValueError):
            show.price_of_a_forward(tokens, seconds)


def figures():
    marks = [s.with_mark("offloaded", [0]).with_mark("quantized", [1, 2]) for s in decoded(6, 4, window=5)]
    ripple = np.tri(30, 20, 0, dtype=bool)
    return {
        "staircase": show.staircase(uncached(5, 20), decoded(5, 20)),
        "short staircase": show.staircase(uncached(5, 2), decoded(5, 2)),
        "long staircase": show.staircase(uncached(250, 8), decoded(250, 8)),
        "strip": show.strip(decoded(5, 8)),
        "one box": show.strip([show.Step("prompt", {0: "computed"})]),
        "many rows": show.strip(decoded(40, 30)),
        "window": show.strip(decoded(120, 40, window=20), bracket="W - 1"),
        "marks": show.strip(marks + [show.Step("row", {3: "recomputed", 4: "dropped"})]),
        "long title": show.strip(decoded(5, 3), title="A claim of {sent} positions " * 5),
        "ripple": show.ripple(ripple),
        "small ripple": show.ripple(ripple[:2, :3]),
        "ruler": show.memory_ruler(MODELS),
        "one ruler": show.memory_ruler(MODELS[2:]),
        "price": show.price_of_a_forward(
            [2**i for i in range(9)], [0.125, 0.13, 0.135, 0.15, 0.18, 0.24, 0.36, 0.6, 1.2]
        ),
    }


def texts_of(fig):
    """All text that is drawn: titles, labels, annotations, and the tick labels within the axes."""
    found = list(fig.texts)
    for ax in fig.axes:
        found += [child for child in ax.get_children() if isinstance(child, Text)]
        if ax.axison:
            found += [ax.xaxis.label, ax.yaxis.label]
            for axis, limits, i in ((ax.xaxis, ax.get_xlim(), 0), (ax.yaxis, ax.get_ylim(), 1)):
                found += [t for t in axis.get_ticklabels() if min(limits) <= t.get_position()[i] <= max(limits)]
    return [text for text in found if text.get_visible() and text.get_text().strip()]


def test_no_text_is_cut_off_overlaps_another_or_is_tiny():
    for name, fig in figures().items():
        fig.canvas.draw()
        seen = [(text, text.get_window_extent(fig.canvas.get_renderer())) for text in texts_of(fig)]
        assert len(seen) >= 3, name
        for text, box in seen:
            assert text.get_fontsize() >= 9, (name, text)
            assert box.x0 >= 0 and box.y0 >= 0 and box.x1 <= fig.bbox.x1 and box.y1 <= fig.bbox.y1, (name, text)
        for (a, box_a), (b, box_b) in combinations(seen, 2):
            wide = min(box_a.x1, box_b.x1) - max(box_a.x0, box_b.x0)
            high = min(box_a.y1, box_b.y1) - max(box_a.y0, box_b.y0)
            assert min(wide, high) <= 2, (name, a, b)


def test_a_notebook_gets_a_png_and_the_alt_text():
    from IPython.core.formatters import DisplayFormatter

    fig = show.strip(decoded(5, 3))
    data, metadata = DisplayFormatter().format(fig)
    assert data["image/png"][:4] == b"\x89PNG" and set(data) == {"image/png", "text/plain"}
    assert data["text/plain"] == metadata["image/png"]["alt"] == show.alt(fig)
    assert "7 positions computed, 11 read from the cache" in show.alt(fig) and "0x" not in show.alt(fig)


def test_figures_ignore_the_readers_settings_and_leave_them_alone():
    import matplotlib

    with matplotlib.rc_context({"font.size": 30, "axes.titlesize": 40, "figure.dpi": 50}):
        fig = show.price_of_a_forward([1, 2], [1.0, 1.0])
        assert fig.dpi == 110 and max(t.get_fontsize() for t in fig.axes[0].texts) < 11
        assert matplotlib.rcParams["font.size"] == 30


def test_importing_show_does_not_import_torch_or_pyplot():
    absent = ["torch", "transformers", "matplotlib.pyplot"]
    code = f"import sys, kvcourse.show; print([m for m in {absent} if m in sys.modules])"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


# ---------------------------------------------------------------- shapes and source


class Shaped:
    def __init__(self, *shape):
        self.shape = shape


def test_shape_boxes_letter_by_letter():
    assert repr(show.shape_box("q", Shaped(1, 9, 5, 64))) == (
        "┌ q ───────────────────────────────────────┐\n"
        "│ batch 1  q_heads 9  q_len 5  head_dim 64 │\n"
        "└──────────────────────────────────────────┘"
    )
    both = show.shape_boxes(k=Shaped(6, 64), v=Shaped(3, 6, 64))
    lines = repr(both).split("\n")
    assert "│ kv_len 6  head_dim 64 │" in lines and "│ kv_heads 3  kv_len 6  head_dim 64 │" in lines
    assert all(len(line) == len(lines[3 * (i // 3)]) for i, line in enumerate(lines))
    assert re.findall("color:(#\\w+)", both._repr_html_()) == [DARK, "#3b7dbd"]
    assert re.sub("<[^>]+>", "", both._repr_html_()) == repr(both)
    named = repr(show.shape_box("scores", Shaped(5, 1200), dims=("q_len", "kv_len")))
    assert "q_len 5  kv_len 1,200" in named
    for bad in (("scores", Shaped(5, 5)), ("q", Shaped(5, 5), ("q_len",)), ("q", Shaped(1, 1, 1, 1, 1))):
        with pytest.raises(ValueError):
            show.shape_box(*bad)


def documented(x):
    """Return x.

    More words.
    """
    # a comment stays
    return x


class Holder:
    @property
    def half(self):
        "One line."
        return 0.5

    def only_words(self):
        """Nothing but words."""


def _lines(n):
    return "def f():\n" + "    pass\n" * (n - 1)


def test_show_source_shows_the_file_dedented():
    shown = show.show_source(documented)
    assert repr(shown).startswith(f'# {__name__}\ndef documented(x):\n    """Return x.')
    assert shown._repr_markdown_() == f"```python\n{shown!r}\n```"
    bare = f"# {__name__}\ndef documented(x):\n    # a comment stays\n    return x"
    assert repr(show.show_source(documented, docstring=False)) == bare
    half = "@property\ndef half(self):\n    return 0.5"
    assert repr(show.show_source(Holder.half, docstring=False)) == f"# {__name__}\n{half}"
    assert "Nothing but words" in repr(show.show_source(Holder.only_words, docstring=False))


@pytest.mark.parametrize("n", [40, 41])
def test_show_source_stops_at_forty_lines(tmp_path, monkeypatch, n):
    (tmp_path / f"lines_{n}.py").write_text(_lines(n))
    monkeypatch.syspath_prepend(str(tmp_path))
    f = __import__(f"lines_{n}").f
    if n == 40:
        assert repr(show.show_source(f)).count("\n") == 40
    else:
        with pytest.raises(ValueError, match="f has 41 lines, a lesson shows at most 40"):
            show.show_source(f)


@pytest.mark.parametrize("nothing", [len, 3, np.zeros])
def test_show_source_of_something_without_source(nothing):
    with pytest.raises(ValueError, match="no Python source"):
        show.show_source(nothing)
