"""The picture of big keys: its title, groups and lines are its data's."""

import re

import pytest
import torch
from matplotlib.colors import to_hex
from matplotlib.patches import Rectangle
from test_show_numbers import texts_apart

from kvcourse import show
from kvcourse.show.picture import ACCENT

PERPLEXITY = {"keys per channel": {4: 13.04, 3: 13.1, 2: 21.6}, "keys per token": {4: 13.5, 3: 15.3, 2: 108.6}}


def keys(top=21, times=12.0, tokens=128, channels=64):
    sizes = torch.ones(tokens, channels)
    sizes[:, top] = times
    return sizes * (1 - 2 * (torch.arange(tokens)[:, None] % 2))


@pytest.mark.parametrize("top,group", [(21, 64), (0, 32), (63, 128)])
def test_title_groups_and_lines_are_the_data(top, group):
    fig = show.where_keys_are_big(keys(top), PERPLEXITY, exact=12.9, group=group)
    assert [int(n) for n in re.findall(r"\d+", fig.texts[0].get_text())] == [top, 12, 2, 22, 109]
    heat = next(ax for ax in fig.axes if ax.images)
    bits = next(ax for ax in fig.axes if ax.get_yscale() == "log")
    assert heat.images[0].get_array().shape == (64, 128)
    assert float(heat.images[0].get_array()[top].min()) == pytest.approx(12)
    outlined = [p for p in heat.patches if isinstance(p, Rectangle) and to_hex(p.get_edgecolor()) == ACCENT]
    assert [(p.get_width(), p.get_height()) for p in outlined] == [(group, 1.8), (1.8, min(group, 64))]
    assert outlined[0].get_y() < top < outlined[0].get_y() + outlined[0].get_height()
    drawn = [list(line.get_ydata()) for line in bits.lines][:2]
    assert drawn == [[13.04, 13.1, 21.6], [13.5, 15.3, 108.6]]
    assert "2 bits 108.6" in show.alt(fig) and f"group of {group} tokens" in show.alt(fig)


def test_no_text_is_cut_off_or_overlaps():
    texts_apart(show.where_keys_are_big(keys(), PERPLEXITY, exact=12.9))
    texts_apart(show.where_keys_are_big(keys(5), {"keys per token": {4: 26.0, 2: 570.0}}, exact=25.7, group=32))


def test_what_cannot_be_drawn_is_refused():
    with pytest.raises(ValueError, match="64 to 160 tokens"):
        show.where_keys_are_big(keys(tokens=40), PERPLEXITY, exact=12.9)
    with pytest.raises(ValueError, match="two numbers of bits"):
        show.where_keys_are_big(keys(), {"keys per token": {4: 13.0}}, exact=12.9)
