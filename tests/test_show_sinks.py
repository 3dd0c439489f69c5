"""The sinks figure: its title, bars and words are its data's."""

import re

import pytest
from matplotlib.colors import to_hex
from matplotlib.text import Text

from kvcourse import show
from kvcourse.show.picture import ACCENT

PERPLEXITY = {"full attention": 23.16, "window of 64": 49.2, "window of 64 and the first 4": 27.3}


def shares(top, at=0, count=200):
    rest = [(1 - top) / (count - 1)] * count
    rest[at] = top
    return rest


@pytest.mark.parametrize("top,at", [(0.29, 0), (0.61, 3), (0.4, 190)])
def test_title_and_bars_are_the_data(top, at):
    fig = show.sinks(shares(top, at), PERPLEXITY)
    title = fig.texts[0].get_text().replace("\n", " ")
    assert [int(n) for n in re.findall(r"\d+", title)] == [at, round(100 * top), 23, 49, 27]
    left, right = fig.axes
    heights = [bar.get_height() for bar in left.patches[:200]]
    assert heights == pytest.approx([100 * share for share in shares(top, at)])
    marked = [bar for bar in left.patches if to_hex(bar.get_facecolor()) == ACCENT]
    assert len(marked) == 1 and marked[0].get_height() == pytest.approx(100 * top)
    assert [bar.get_width() for bar in right.patches] == list(PERPLEXITY.values())
    assert title in show.alt(fig) and "window of 64 and the first 4 27" in show.alt(fig)


def test_no_text_is_cut_off_or_overlaps():
    for fig in (
        show.sinks(shares(0.29), PERPLEXITY),
        show.sinks(shares(0.9, 1, 4), dict(list(PERPLEXITY.items())[:2])),
    ):
        fig.canvas.draw()
        found = [*fig.texts, *(t for ax in fig.axes for t in ax.get_children() if isinstance(t, Text))]
        found += [label for ax in fig.axes for label in (ax.xaxis.label, ax.yaxis.label)]
        seen = [text.get_window_extent() for text in found if text.get_text().strip()]
        for i, box in enumerate(seen):
            assert box.x0 >= 0 and box.y0 >= 0 and box.x1 <= fig.bbox.x1 and box.y1 <= fig.bbox.y1, found[i]
            for other in seen[:i]:
                wide, high = (
                    min(box.x1, other.x1) - max(box.x0, other.x0),
                    min(box.y1, other.y1) - max(box.y0, other.y0),
                )
                assert min(wide, high) <= 2


def test_what_is_no_share_of_attention_is_refused():
    with pytest.raises(ValueError, match="add up to 1"):
        show.sinks([0.5, 0.2], PERPLEXITY)
    with pytest.raises(ValueError, match="one other way"):
        show.sinks(shares(0.5), {"full attention": 23.0})
