"""Pictures of states: one map a step on one scale, the bytes of both kinds, and titles counted from the data."""

import re

import numpy as np
import pytest
import torch

from kvcourse import show


def title_of(fig):
    return fig.texts[0].get_text().replace("\n", " ")


def inside(fig):
    fig.canvas.draw()
    texts = [*fig.texts, *(text for ax in fig.axes for text in (*ax.texts, ax.xaxis.label, ax.yaxis.label))]
    boxes = [text.get_window_extent(fig.canvas.get_renderer()) for text in texts]
    return all(b.x0 >= 0 and b.y0 >= 0 and b.x1 <= fig.bbox.x1 and b.y1 <= fig.bbox.y1 for b in boxes)


@pytest.mark.parametrize("steps", [2, 5, 7])
def test_a_map_a_step_and_the_title_counts_what_the_last_one_changed(steps):
    states = [torch.arange(6.0).reshape(2, 3) * (step + 1) * (-1) ** step for step in range(steps)]
    states[-1] = states[-2].clone()
    states[-1][1] += 0.5  # three of the six
    labels = list("abcdefg")[:steps]
    fig = show.state_pictures(states, labels)
    assert [int(n) for n in re.findall(r"\d+", title_of(fig))] == [steps, 6, 3]
    maps = [ax.images[0] for ax in fig.axes]
    assert [ax.texts[0].get_text() for ax in fig.axes] == labels
    for drawn, state in zip(maps, states, strict=True):
        assert np.array_equal(drawn.get_array(), state.abs().numpy())
    assert {drawn.get_clim() for drawn in maps} == {(0, max(state.abs().max().item() for state in states))}
    assert title_of(fig) in show.alt(fig) and "2 x 3" in show.alt(fig) and inside(fig)


def test_states_of_different_shapes_or_without_labels_are_refused():
    with pytest.raises(ValueError, match="one shape"):
        show.state_pictures([torch.zeros(2, 3), torch.zeros(3, 2)], "ab")
    with pytest.raises(ValueError, match="a label for each"):
        show.state_pictures([torch.zeros(2, 3), torch.ones(2, 3)], "a")


def test_the_title_names_the_first_length_at_which_keys_need_more():
    tokens = [1, 2, 3, 4, 100]
    fig = show.constant_or_growing(tokens, [10 * n for n in tokens], [25] * 5)
    assert [int(n) for n in re.findall(r"\d+", title_of(fig))] == [25, 3]
    drawn = [list(line.get_ydata()) for line in fig.axes[0].lines]
    assert drawn == [[10, 20, 30, 40, 1_000], [25] * 5, [25]]
    assert "keys and values 1,000 bytes, the state 25" in show.alt(fig) and inside(fig)


def test_keys_that_need_less_all_along_are_called_so():
    fig = show.constant_or_growing([1, 2], [10, 20], [25, 25])
    assert title_of(fig) == "A state: 25 bytes at any length; keys and values need less"


@pytest.mark.parametrize(
    "given,words",
    [
        (([1, 2], [1, 2], [5, 6]), "not constant"),
        (([2, 1], [1, 2], [5, 5]), "ascend"),
        (([1, 2], [1], [5, 5]), "as many bytes"),
    ],
)
def test_refuses_what_is_no_measurement(given, words):
    with pytest.raises(ValueError, match=words):
        show.constant_or_growing(*given)
