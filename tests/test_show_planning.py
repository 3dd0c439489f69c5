"""Calculator, closing map and the memory of a server: what they say is their data, and the widget can't be misled."""

import re
import time
from itertools import combinations

import pytest
from traitlets import TraitError

import kvcourse as kv
from kvcourse import show
from kvcourse.lineup import Measured
from kvcourse.paged import BlockPool
from kvcourse.planning import in_units
from kvcourse.public import PUBLIC

SOME = {name: PUBLIC[name] for name in ("SmolLM2-135M", "Llama-3.1-8B")}


@pytest.fixture(scope="module")
def calculator():
    return show.Calculator(models=SOME)


def expected(calculator):
    public = SOME[calculator.model]
    sizes = {"context": calculator.context, "batch": calculator.batch, "weights": 2 * public.parameters()}
    wishes = {"exact": calculator.exact, "compiled": calculator.compiled}
    return kv.plan(public.config(), calculator.memory * 2**30, **sizes, **wishes)


def test_every_move_shows_the_plan_for_what_is_chosen(calculator):
    calculator.box.children  # noqa: B018  (made once, as the notebook does)
    moves = [("context", 32_768), ("batch", 1), ("memory", 16), ("exact", True), ("model", "SmolLM2-135M")]
    moves += [("compiled", True), ("exact", False), ("compiled", False), ("memory", 24), ("batch", 8)]
    moves += [("model", "Llama-3.1-8B"), ("context", 16_384)]
    reasons = set()
    for name, value in moves:
        begin = time.perf_counter()
        calculator.boxes[name].value = value
        assert time.perf_counter() - begin < 0.2
        made = expected(calculator)
        assert getattr(calculator, name) == value and calculator.plan == made
        page = calculator._view.value
        assert made.reason in page and all(in_units(option.nbytes) in page for option in made.options)
        assert page.count("too large</td>") == sum(not option.fits for option in made.options)
        assert calculator.text() == repr(made)
        reasons.add(made.reason)
    assert len(reasons) > 6


def test_bad_values_cannot_be_chosen(calculator):
    for name, value in (("context", 7), ("batch", 0), ("memory", -1), ("model", "another"), ("exact", "perhaps")):
        calculator.box  # noqa: B018
        with pytest.raises(TraitError):
            calculator.boxes[name].value = value
    with pytest.raises(ValueError, match="context=7: choose from 512"):
        show.Calculator(context=7, models=SOME)


def test_the_picture_is_the_plan(calculator):
    made = show.Calculator(models=SOME).plan
    fig = show.plan_bars(made)
    assert title(fig).startswith(f"{sum(o.fits for o in made.options)} of {len(made.options)} caches fit")
    assert title(fig).endswith("take hqq, 4 bits")
    weights, caches = fig.axes[0].patches[::2], fig.axes[0].patches[1::2]
    assert all(bar.get_width() == pytest.approx(made.weights / 2**30) for bar in weights)
    assert [bar.get_width() for bar in caches] == pytest.approx([option.nbytes / 2**30 for option in made.options])
    assert all((bar.get_hatch() is None) == option.fits for bar, option in zip(caches, made.options, strict=True))
    assert repr(show.Calculator(models=SOME)) == "Calculator(Llama-3.1-8B, 24 GiB, 16,384 tokens, batch 8)"


def row(name, nbytes, step, croppable=True, compileable=False, exact=True):
    return Measured(name, 100, 100 * nbytes, 0, step, croppable, compileable, exact, "01")


ROWS = [
    row("no cache", 0, 3.0, compileable=True),
    row("dynamic", 51_200, 0.1),
    row("windows", 30_000, 0.1, croppable=False),
    row("static", 92_160, 0.12, compileable=True),
    row("4 bits", 10_240, 0.25, exact=False),
    row("2 bits", 9_216, 0.26, exact=False),
]


def title(fig):
    return fig.texts[0].get_text().replace("\n", " ")


def test_the_map_says_and_marks_what_was_measured():
    fig = show.closing_map(ROWS)
    assert title(fig) == "dynamic holds 50 KiB a token; 2 bits 9 KiB on the device, and takes 2.6 times as long"
    marks = [line for line in fig.axes[0].lines if line.get_markersize() == 10]
    assert [line.get_marker() for line in marks] == ["o"] * 4 + ["^"] * 2
    assert [line.get_markerfacecolor() == "white" for line in marks] == [not r.croppable for r in ROWS]
    assert [line.get_ydata()[0] for line in marks] == pytest.approx([r.step_s / 0.1 for r in ROWS])
    assert [line.get_xdata()[0] for line in marks][1:] == pytest.approx([r.bytes_per_token / 1024 for r in ROWS[1:]])
    rings = [line for line in fig.axes[0].lines if line.get_markersize() == 19]
    assert len(rings) == sum(r.compileable for r in ROWS)
    assert "windows: 29 KiB a token, 1.0 times the step, exact;" in show.alt(fig)
    with pytest.raises(ValueError, match="no row is called 'dynamic'"):
        show.closing_map(ROWS[:1])


def test_names_on_the_map_cover_no_other_name():
    fig = show.closing_map(ROWS)
    fig.canvas.draw()
    boxes = [text.get_window_extent(fig.canvas.get_renderer()) for text in fig.axes[0].texts]
    assert len(boxes) == len(ROWS) and not any(a.overlaps(b) for a, b in combinations(boxes, 2))
    assert all(fig.bbox.x0 <= b.x0 and b.x1 <= fig.bbox.x1 for b in boxes)


def pool_of(lengths):
    pool = BlockPool(12)
    for name, tokens in lengths.items():
        pool.start(name, tokens)
    return pool


def test_rooms_and_blocks_are_counted_and_drawn():
    lengths = {"A": 40, "B": 9, "C": 100}
    pool = pool_of(lengths)
    fig = show.server_memory(lengths, 128, pool)
    assert title(fig) == "3 requests: 235 of 384 slots wasted in rooms, 27 of 176 in blocks of 16"
    assert [int(n) for n in re.findall(r"\d+", title(fig))] == [3, 3 * 128 - 149, 3 * 128, pool.wasted, 11 * 16, 16]
    for ax, tokens in zip(fig.axes, (149, 149), strict=True):
        light = [p.get_width() for p in ax.patches if p.get_facecolor()[3] and p.get_height() < 0.9]
        assert sum(light) + 0.16 * len(light) == pytest.approx(tokens)
    assert "block 3: B" in show.alt(fig) and "1 block free" in show.alt(fig)
    with pytest.raises(ValueError, match="128 tokens"):
        show.server_memory({"A": 129}, 128, pool)


def test_blocks_in_text():
    pool = pool_of({"A": 20})
    pool.fork("B", of="A")
    pool.append("B", 1)
    assert show.blocks_text(pool).splitlines()[:4] == [
        "block  0  A B   ░░░░░░░░░░░░░░░░",
        "block  1  A     ░░░░············",
        "block  2  B     ░░░░░···········",
        "block  3  free",
    ]
