"""Pictures of numbers in few bits: the bits drawn are the bits packed, titles and marks are the data."""

import re

import pytest
import torch
from matplotlib.colors import to_hex
from matplotlib.text import Text

from kvcourse import show
from kvcourse.quantize import BITS, pack
from kvcourse.show.picture import ACCENT

FP8 = torch.arange(256, dtype=torch.uint8).view(torch.float8_e4m3fn).float()
FP8 = sorted(set(FP8[FP8.isfinite()].tolist()))


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("count", [1, 5, 8, 16])
def test_the_bits_drawn_give_the_codes_back(bits, count):
    codes = torch.randint(0, 2**bits, (count,), generator=torch.Generator().manual_seed(count)).tolist()
    text = show.packing_text(codes, bits)
    bytes_drawn = [line.split()[2:] for line in text.splitlines() if line.startswith("byte")]
    owners = [line.split()[2:] for line in text.splitlines() if line.startswith("of code")]
    packed = pack(torch.tensor(codes, dtype=torch.uint8), bits).tolist()
    assert [int("".join(row), 2) for row in bytes_drawn] == packed
    found = [""] * count
    for row, owner in zip(bytes_drawn, owners, strict=True):
        for bit, code in zip(reversed(row), reversed(owner), strict=True):
            if code == ".":
                assert bit == "0"
            else:
                found[int(code, 16)] = bit + found[int(code, 16)]  # bits come from the low end up
    assert [int(code, 2) for code in found] == codes
    assert text.endswith("bytes" if len(packed) > 1 else "1 byte") and f": {len(packed)} byte" in text


def test_too_many_codes_are_refused():
    for codes in ([], [0] * 17):
        with pytest.raises(ValueError, match="1 to 16"):
            show.packing_text(codes, 4)


def test_a_number_lands_on_the_nearest_value():
    line = show.NumberLine("levels", [-1.0, 0.0, 4.0], [-0.6, 1.9, 2.1, 9.0])
    assert [line.landing(x) for x in line.numbers] == [-1.0, 0.0, 4.0, 4.0]
    assert line.errors == pytest.approx([0.4, 1.9, 1.9, 5.0])
    assert (line.between(-1, 4), line.between(-2, 5)) == (1, 3)


def test_the_title_names_the_largest_error_and_each_number_has_a_way():
    lines = [show.NumberLine("fine", [0, 1, 2, 3], [0.2, 2.9]), show.NumberLine("coarse", [0, 3], [0.2, 1.4])]
    fig = show.number_line(lines)
    title = fig.texts[0].get_text().replace("\n", " ")
    assert title == "Fine: off by up to 0.2; coarse: off by up to 1.4"
    (ax,) = fig.axes
    ways = [line.get_xdata() for line in ax.lines if to_hex(line.get_color()) == ACCENT and len(line.get_xdata()) == 2]
    assert [tuple(way) for way in ways] == [(0.2, 0), (2.9, 3), (0.2, 0), (1.4, 0)]
    assert [len(ticks.get_segments()) for ticks in ax.collections] == [4, 2]


def test_with_zoom_the_title_counts_the_values_between_minus_one_and_one():
    even = [-448 + 896 * i / 252 for i in range(253)]
    fig = show.number_line([show.NumberLine("even steps", even), show.NumberLine("fp8", FP8)], zoom=2)
    assert [int(n) for n in re.findall(r"\d+", fig.texts[0].get_text())[2:]] == [1, 253, 111, 253, 8]
    zoomed, whole = fig.axes
    assert [len(ticks.get_segments()) for ticks in whole.collections] == [253, 253]
    assert [len(ticks.get_segments()) for ticks in zoomed.collections] == [1, sum(abs(x) <= 2 for x in FP8)]
    with pytest.raises(ValueError, match="at least one"):
        show.number_line([])


def test_errors_are_drawn_as_shares_of_their_start():
    fig = show.error_by_step({"2 bits": [4.0, 3.0, 2.0], "4 bits": [0.5, 0.45, 0.45]})
    assert fig.texts[0].get_text() == "2 steps lower the mean error by 50 % (2 bits), 10 % (4 bits)"
    drawn = [list(line.get_ydata()) for line in fig.axes[0].lines]
    assert drawn == [pytest.approx([100, 75, 50]), pytest.approx([100, 90, 90])]
    with pytest.raises(ValueError, match="two or more errors"):
        show.error_by_step({"none": [1.0]})


def test_no_text_is_cut_off_or_overlaps():
    line = show.NumberLine("a label", [0, 1, 2, 3], [0.2, 2.9])
    for fig in (
        show.number_line([line, line]),
        show.number_line([show.NumberLine("fp8", FP8), line], zoom=2),
        show.error_by_step({"2 bits": [4, 3, 2], "3 bits": [4, 3, 2.01], "4 bits": [5, 4.9]}),
    ):
        texts_apart(fig)


def texts_apart(fig):
    fig.canvas.draw()
    found = [*fig.texts, *(t for ax in fig.axes for t in ax.get_children() if isinstance(t, Text))]
    found += [label for ax in fig.axes for label in (ax.xaxis.label, ax.yaxis.label)]
    seen = [(text, text.get_window_extent()) for text in found if text.get_text().strip()]
    for i, (text, box) in enumerate(seen):
        assert box.x0 >= 0 and box.y0 >= 0 and box.x1 <= fig.bbox.x1 and box.y1 <= fig.bbox.y1, text
        for _, other in seen[:i]:
            assert (
                min(min(box.x1, other.x1) - max(box.x0, other.x0), min(box.y1, other.y1) - max(box.y0, other.y0)) <= 2
            )
