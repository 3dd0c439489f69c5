"""The figure of slots: bars, labels, title and alt text are the numbers given."""

from itertools import combinations

import pytest

from kvcourse import show

ONE_LONG = {"text 1": 1000} | {f"text {n}": 40 for n in range(2, 11)}
STEPS = {f"token {n}": 5 + n for n in range(1, 20)}


def title_of(fig):
    return fig.texts[0].get_text().replace("\n", " ")


def bars(fig):
    """(empty, filled) widths, one pair a row; each row's two bars meet and span all slots."""
    patches = fig.axes[0].patches
    return list(zip(patches[::2], patches[1::2], strict=True))


@pytest.mark.parametrize("filled,capacity,share", [(ONE_LONG, 1024, 87), (STEPS, 64, 77), ({"a": 0}, 5, 100)])
def test_bars_labels_and_title_are_the_data(filled, capacity, share):
    fig = show.slots(filled, capacity)
    assert [full.get_width() for _, full in bars(fig)] == list(filled.values())
    for empty, full in bars(fig):
        assert full.get_x() == 0 and empty.get_x() == full.get_width() and empty.get_width() + empty.get_x() == capacity
    assert [text.get_text() for text in fig.axes[0].texts] == [f"{n:,} of {capacity:,}" for n in filled.values()]
    assert [label.get_text() for label in fig.axes[0].get_yticklabels()] == list(filled)
    assert title_of(fig) == f"{share} % of {capacity * len(filled):,} slots hold nothing"
    assert show.alt(fig).startswith(title_of(fig))


def test_a_title_names_what_was_counted():
    fig = show.slots({"a": 3, "b": 1}, 8, title="{rows} rows, {slots} slots, {filled} filled, {empty} empty, {share} %")
    assert title_of(fig) == "2 rows, 16 slots, 4 filled, 12 empty, 75 %"
    assert show.alt(fig).endswith(
        "2 rows of 8 slots: 4 hold a token, 12 hold nothing; the filled ones of each row: 3, 1."
    )


@pytest.mark.parametrize("filled,capacity", [(ONE_LONG, 1024), (STEPS, 64), ({"one": 8}, 8)])
def test_no_words_are_cut_off_or_cover_others(filled, capacity):
    fig = show.slots(filled, capacity)
    fig.canvas.draw()
    renderer = fig.canvas.get_renderer()
    written = [*fig.texts, *(text for ax in fig.axes for text in ax.texts), fig.axes[0].xaxis.label]
    written += fig.axes[0].get_yticklabels()
    boxes = [text.get_window_extent(renderer) for text in written]
    for box in boxes:
        assert box.x0 >= 0 and box.y0 >= 0 and box.x1 <= fig.bbox.x1 and box.y1 <= fig.bbox.y1
    assert not any(a.overlaps(b) for a, b in combinations(boxes, 2))


@pytest.mark.parametrize("filled,capacity", [({}, 4), ({"a": 5}, 4), ({"a": -1}, 4), ({"a": 0}, 0)])
def test_refuses_what_does_not_fit(filled, capacity):
    with pytest.raises(ValueError, match="filled slots"):
        show.slots(filled, capacity)
