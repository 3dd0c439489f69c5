"""The forgetting curve: title, lines and words are its data, and no label covers another."""

import re
from itertools import combinations

import pytest

from kvcourse import show

LENGTHS = [3, 5, 8, 9, 10, 12]
RUNS = {
    "as measured": ([1, 1, 0.999, 0.834, 0.666, 0.41], [1, 1, 0.996, 0.097, 0, 0]),
    "lines meet": ([1, 1, 1, 0.5, 0.3, 0.2], [1, 1, 1, 0.5, 0.3, 0.2]),
    "nothing lost": ([1] * 6, [1] * 6),
    "all lost": ([1, 1, 0.9, 0, 0, 0], [1, 1, 0.8, 0, 0, 0]),
}


def title_of(fig):
    return fig.texts[0].get_text().replace("\n", " ")


def line(fig, marker):
    return next(list(line.get_ydata()) for line in fig.axes[0].lines if line.get_marker() == marker)


@pytest.mark.parametrize("letters,answers", RUNS.values(), ids=RUNS)
def test_title_and_lines_are_the_data(letters, answers):
    fig = show.forgetting(LENGTHS, letters, answers, (3, 8))
    assert line(fig, "o") == pytest.approx([100 * share for share in letters])
    assert line(fig, "s") == pytest.approx([100 * share for share in answers])
    known = [8, round(100 * letters[2]), 12, round(100 * letters[-1])]
    assert [int(n) for n in re.findall(r"\d+", title_of(fig))] == known
    assert title_of(fig) in show.alt(fig)
    assert f"9: {letters[3]:.0%} and {answers[3]:.0%}" in show.alt(fig) and "5: " not in show.alt(fig)


@pytest.mark.parametrize("letters,answers", RUNS.values(), ids=RUNS)
def test_no_label_is_cut_off_or_covers_another(letters, answers):
    fig = show.forgetting(LENGTHS, letters, answers, (3, 8))
    fig.canvas.draw()
    boxes = [text.get_window_extent(fig.canvas.get_renderer()) for text in (*fig.texts, *fig.axes[0].texts)]
    assert len(boxes) == 4
    for box in boxes:
        assert box.x0 >= 0 and box.y0 >= 0 and box.x1 <= fig.bbox.x1 and box.y1 <= fig.bbox.y1
    assert not any(a.overlaps(b) for a, b in combinations(boxes, 2))


@pytest.mark.parametrize(
    "given,words",
    [
        (([8, 9], [1], [1, 1], (3, 8)), "as many shares"),
        (([9, 8], [1, 1], [1, 1], (3, 8)), "ascend"),
        (([8, 9], [1, 1.5], [1, 1], (3, 8)), "between 0 and 1"),
        (([3, 8], [1, 1], [1, 1], (3, 8)), "longest practised length"),
    ],
)
def test_refuses_what_is_no_measurement(given, words):
    with pytest.raises(ValueError, match=words):
        show.forgetting(*given)
