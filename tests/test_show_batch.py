"""The figure of a batch: its title, lines and alt text are its data, and no label covers another."""

import re
from itertools import combinations

import numpy as np
import pytest

from kvcourse import show

BATCHES = [1, 2, 4, 8, 16]
RUNS = {
    "as measured": [0.080, 0.085, 0.116, 0.142, 0.188],
    "lines meet": [0.080, 0.127, 0.200, 0.320, 0.320],
    "free": [0.080, 0.080, 0.080, 0.080, 0.081],
    "slows all alike": [0.080, 0.160, 0.320, 0.640, 1.281],
    "faster than alone": [0.080, 0.040, 0.040, 0.040, 0.040],
}


def title_of(fig):
    return fig.texts[0].get_text().replace("\n", " ")


def line(fig, marker):
    return next(np.array(line.get_ydata(), float) for line in fig.axes[0].lines if line.get_marker() == marker)


@pytest.mark.parametrize("seconds", RUNS.values(), ids=RUNS)
def test_the_two_lines_multiply_to_the_batch_and_the_title_names_their_ends(seconds):
    fig = show.price_of_a_batch(BATCHES, seconds)
    rate, wait = line(fig, "o"), line(fig, "s")
    assert np.allclose(wait * seconds[0], seconds) and np.allclose(rate * wait, BATCHES)
    assert line(fig, "None").tolist() == BATCHES
    users, faster, longer = (float(n) for n in re.findall(r"[\d.]+", title_of(fig)))
    assert users == 16 and faster == pytest.approx(rate[-1], abs=0.5) and longer == pytest.approx(wait[-1], abs=0.5)
    assert title_of(fig) in show.alt(fig)


def test_title_and_alt_text_letter_by_letter():
    fig = show.price_of_a_batch([2, 8], [0.1, 0.2])
    assert title_of(fig) == "8 users at once: 2 times the tokens a second, 2 times the wait"
    assert show.alt(fig).endswith(
        "From 2 users to 8: all users together from 20 to 40 tokens a second, each user's wait for a token from 100 ms "
        "to 200 ms; a dashed line shows the number of users."
    )
    assert line(fig, "None").tolist() == [1, 4]


@pytest.mark.parametrize("seconds", RUNS.values(), ids=RUNS)
def test_no_label_is_cut_off_or_covers_another(seconds):
    fig = show.price_of_a_batch(BATCHES, seconds)
    fig.canvas.draw()
    boxes = [text.get_window_extent(fig.canvas.get_renderer()) for text in (*fig.texts, *fig.axes[0].texts)]
    assert len(boxes) == 4
    for box in boxes:
        assert box.x0 >= 0 and box.y0 >= 0 and box.x1 <= fig.bbox.x1 and box.y1 <= fig.bbox.y1
    assert not any(a.overlaps(b) for a, b in combinations(boxes, 2))


@pytest.mark.parametrize("batches,seconds", [([1], [1.0]), ([1, 2], [1.0]), ([2, 1], [1.0, 1.0]), ([1, 2], [0.0, 1.0])])
def test_refuses_what_is_no_measurement(batches, seconds):
    with pytest.raises(ValueError, match="batch sizes"):
        show.price_of_a_batch(batches, seconds)
