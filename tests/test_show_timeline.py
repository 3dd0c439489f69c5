"""The offload timeline and the memory in use: titles, boxes and text twin are the events, and nothing overlaps."""

import copy
from itertools import combinations

import pytest
import torch
from matplotlib.colors import to_hex
from matplotlib.patches import Rectangle

import kvcourse as kv
from kvcourse import show
from kvcourse.offload import Event, stalls
from kvcourse.show.timeline import LOOKS, SHADE


def timeline(fetch_ms, layers=6, steps=3, depth=1, compute=1e-3):
    """Events of an emulated link over which a layer of 1,000 slots takes `fetch_ms`."""
    config = copy.deepcopy(kv.public.PUBLIC["SmolLM2-135M"].config())
    config.num_hidden_layers = layers
    with kv.emulated_device(10**9, 1_536_000 / fetch_ms * 1e3, 0.0, compute=compute):
        cache = kv.DynamicCache(config=config, offloading=True)
        cache.offloader.depth = depth
        kv.measure.fill(cache, config, 800, dtype=torch.float32)
        for _ in range(steps):
            kv.measure.fill(cache, config, 1, dtype=torch.float32)
        return cache.offloader.timeline


def by_hand():
    """Two steps of two layers, in seconds: 3 of computing and 2 of waiting in the second one."""
    return [
        Event(0, "compute", 0.0, 1.0),
        Event(1, "compute", 1.0, 2.0),
        Event(0, "fetch", 1.5, 3.0, 10),
        Event(0, "compute", 3.0, 4.0),
        Event(1, "fetch", 3.0, 5.0, 10),
        Event(0, "write-back", 4.0, 4.5, 1),
        Event(1, "compute", 5.0, 7.0),
        Event(0, "fetch", 6.0, 9.0, 10),
    ]


def title_of(fig):
    return fig.texts[0].get_text().replace("\n", " ")


def boxes(ax, kind):
    face = LOOKS[kind]["facecolor"]
    found = [p for p in ax.patches if type(p) is Rectangle and to_hex(p.get_facecolor()) == face]
    return [(p.get_x(), p.get_x() + p.get_width()) for p in found]


def shaded(ax):
    return [(p.get_x(), p.get_x() + p.get_width()) for p in ax.patches if to_hex(p.get_facecolor()) == SHADE]


def test_the_last_step_is_cut_out_and_counts_its_waits():
    step = show.last_step(by_hand())
    assert (step.seconds, step.layers, step.waited) == (5.0, 2, 2.0)
    assert step.waits == ((0, 0.0, 1.0), (1, 2.0, 3.0))
    assert [(e.layer, e.kind, e.start, e.end) for e in step.events] == [
        (0, "fetch", 0.0, 1.0),  # began in the step before
        (0, "compute", 1.0, 2.0),
        (1, "fetch", 1.0, 3.0),
        (0, "write-back", 2.0, 2.5),
        (1, "compute", 3.0, 5.0),
        (0, "fetch", 4.0, 5.0),  # goes on in the step after
    ]
    first = show.last_step(by_hand()[:2])
    assert (first.seconds, first.layers, first.waits) == (2.0, 2, ())


@pytest.mark.parametrize("fetch_ms", [0.5, 1, 2, 5])
@pytest.mark.parametrize("depth", [0, 1, 2])
def test_waits_are_the_stalls_of_the_offloader(fetch_ms, depth):
    events = timeline(fetch_ms, depth=depth)
    step, found = show.last_step(events), stalls(events)
    lasting = [e for e in found if e.start >= max(x.end for x in events if x.kind == "compute") - step.seconds - 1e-12]
    assert len(step.waits) == len(lasting) and step.waited == pytest.approx(sum(e.end - e.start for e in lasting))
    assert step.seconds == pytest.approx(6e-3 + step.waited)


def test_a_step_takes_the_slower_of_the_two_with_one_layer_ahead_or_more():
    for fetch_ms in (0.5, 1, 2, 5):
        assert show.last_step(timeline(fetch_ms, depth=0)).seconds == pytest.approx(6e-3 * (1 + fetch_ms))
        for depth in (1, 2, 3):
            step = show.last_step(timeline(fetch_ms, steps=4, depth=depth))
            assert step.seconds == pytest.approx(6e-3 * max(1, fetch_ms))


def test_title_boxes_and_shades_are_the_events():
    runs = {"fast link": timeline(0.5), "slow link": timeline(2)}
    fig = show.offload_timeline(runs)
    assert title_of(fig) == "Fast link: 6 ms a step, no waiting; slow link: 12 ms a step, 6 ms of waiting"
    for ax, label in zip(fig.axes, ("slow link", "fast link"), strict=True):  # from below
        step = show.last_step(runs[label])
        for kind in LOOKS:
            drawn = [second / 1e3 for pair in boxes(ax, kind) for second in pair]
            assert drawn == pytest.approx([t for e in step.events if e.kind == kind for t in (e.start, e.end)])
        assert sum(end - start for start, end in shaded(ax)) == pytest.approx(1e3 * step.waited)
        assert sum(t.get_text() == "waits" for t in ax.texts) == len(step.waits)
        assert ax.get_xlim() == pytest.approx((0, 12))
    assert title_of(fig) in show.alt(fig)
    assert show.alt(fig).endswith("slow link: 6 layers compute beside 7 fetches and 6 write-backs; 6 waits, shaded.")


def test_text_twin_letter_by_letter():
    assert show.timeline_text(by_hand(), 0.5) == (
        "fetch      001111  00\n"
        "compute    ··00··1111\n"
        "write-back     0\n"
        "A character is 500 ms, a digit a layer, · waiting."
    )
    slow = show.timeline_text(timeline(2), 0.5e-3).split("\n")
    assert slow[0] == "fetch      001111222233334444555500"
    assert slow[1] == "compute    ··00··11··22··33··44··55"
    assert slow[2] == "write-back 0   1   2   3   4   5"


def test_nothing_to_draw_is_said():
    for call in (show.last_step, lambda events: show.timeline_text(events, 1.0)):
        with pytest.raises(ValueError, match="no computation"):
            call([Event(0, "fetch", 0, 1)])
    with pytest.raises(ValueError, match="at least one timeline"):
        show.offload_timeline({})


ATTEMPTS = {"resident": [2**20 * n // 4 for n in range(1, 40)], "offloaded": [2**19, 2**20] * 20}


def test_title_and_lines_are_the_bytes():
    fig = show.memory_in_use(ATTEMPTS, 10 * 2**20, failed=["resident"])
    assert title_of(fig) == "The device has 10.0 MiB; resident: does not fit; offloaded: at most 1.0 MiB"
    limit, resident, cross, offloaded = fig.axes[0].lines
    assert set(limit.get_ydata()) == {10.0}
    assert [y * 2**20 for y in resident.get_ydata()] == ATTEMPTS["resident"]
    assert [y * 2**20 for y in offloaded.get_ydata()] == ATTEMPTS["offloaded"]
    assert list(resident.get_xdata()) + list(offloaded.get_xdata()) == list(range(79))
    assert (cross.get_xdata()[0], cross.get_ydata()[0]) == (38, ATTEMPTS["resident"][-1] / 2**20)
    assert title_of(fig) in show.alt(fig) and "79 times" in show.alt(fig)


def test_memory_in_use_refuses_what_it_cannot_draw():
    for attempts, failed, words in (
        ({}, (), "at least|give"),
        ({"a": []}, (), "number"),
        ({"a": [1]}, ["b"], "names b"),
    ):
        with pytest.raises(ValueError, match=words):
            show.memory_in_use(attempts, 1, failed)


def test_no_label_is_cut_off_or_covers_another():
    figures = [
        show.offload_timeline({"fast link": timeline(0.5), "slow link": timeline(2)}),
        show.offload_timeline({"one": timeline(1.5, layers=30)}),
        show.offload_timeline({"a": timeline(0.2), "b": timeline(1), "c": timeline(9)}),
        show.memory_in_use(ATTEMPTS, 10 * 2**20, failed=["resident"]),
        show.memory_in_use({"one": [5, 6, 7]}, 2**20),
    ]
    for fig in figures:
        fig.canvas.draw()
        texts = [*fig.texts, *(text for ax in fig.axes for text in ax.texts)]
        found = [(t.get_text(), t.get_window_extent(fig.canvas.get_renderer())) for t in texts]
        for words, box in found:
            assert box.x0 >= 0 and box.y0 >= 0 and box.x1 <= fig.bbox.x1 and box.y1 <= fig.bbox.y1, words
        for (a, box_a), (b, box_b) in combinations(found, 2):
            wide, high = min(box_a.x1, box_b.x1) - max(box_a.x0, box_b.x0), min(box_a.y1, box_b.y1)
            assert min(wide, high - max(box_a.y0, box_b.y0)) <= 1, (a, b)


def test_the_knee_explorer_shows_the_run_that_is_chosen():
    runs = {(fetch, depth): timeline(fetch, depth=depth) for fetch in (0.5, 2) for depth in (0, 1)}
    fetch, depth, view = show.knee_explorer(runs).children
    for chosen, (ms, ahead) in (((2, 1), (12, 1)), ((0.5, 1), (6, 1)), ((0.5, 0), (9, 0)), ((2, 0), (18, 0))):
        fetch.value, depth.value = chosen[0], ahead
        assert f"a fetch takes {chosen[0]:g} ms, {ahead} ahead: {ms} ms a step" in view.value.lower()
    assert not fetch.continuous_update
    del runs[2, 0]
    with pytest.raises(ValueError, match=r"missing are \[\(2, 0\)\]"):
        show.knee_explorer(runs)
    with pytest.raises(ValueError, match="give timelines"):
        show.knee_explorer({})


def test_several_figures_can_have_one_scale():
    fig = show.offload_timeline({"fast": timeline(0.5)}, until=0.02)
    assert fig.axes[0].get_xlim() == pytest.approx((0, 20))
    assert boxes(fig.axes[0], "compute")[-1][1] == pytest.approx(6)
