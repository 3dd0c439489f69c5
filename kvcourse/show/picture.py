"""What all figures share: the style file, the colours, the title, and an alt text.

Figures are made without pyplot, so that a notebook draws them once, where they are returned.
"""

import io
from collections.abc import Callable
from functools import cache, wraps
from pathlib import Path

import matplotlib
from matplotlib import style
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.textpath import TextPath

STYLE = Path(__file__).with_name("kvcourse.mplstyle")
WIDTH = 8.0  # inches, every figure

DARK, BLUE, LIGHT, ACCENT, GREY = "#0b3c6f", "#3b7dbd", "#cfe1f2", "#d95f0e", "#6b7580"
ROLE_COLOURS = {"q": ACCENT, "k": DARK, "v": BLUE, "": GREY}  # queries, keys, values, anything else


class Picture(Figure):
    """A figure with an alt text computed from its data; the alt text is also its repr."""

    alt = ""

    def __repr__(self) -> str:
        return self.alt or super().__repr__()

    def _repr_mimebundle_(self, include=None, exclude=None):
        with style.context(STYLE):
            buffer = io.BytesIO()
            self.savefig(buffer, format="png", dpi=self.dpi)
        return {"image/png": buffer.getvalue(), "text/plain": self.alt}, {"image/png": {"alt": self.alt}}


def alt(fig: Figure) -> str:
    """The alt text of a figure of this package: what it shows, in words, with the numbers of its data."""
    return getattr(fig, "alt", "")


def new_picture(height: float, width: float = WIDTH) -> Picture:
    """An empty figure, sizes in inches. It does not exist for pyplot."""
    fig = Picture(figsize=(width, height))
    FigureCanvasAgg(fig)
    return fig


def add_axes(fig: Figure, left: float, bottom: float, width: float, height: float) -> Axes:
    """Axes at a place given in inches from the lower left corner, so that boxes stay square."""
    w, h = fig.get_size_inches()
    return fig.add_axes((left / w, bottom / h, width / w, height / h))


def styled(draw: Callable) -> Callable:
    """Draw with the one style file of the course, whatever the reader's own settings are."""

    @wraps(draw)
    def drawn(*args, **kwargs):
        with matplotlib.rc_context(), style.context(["default", STYLE]):
            return draw(*args, **kwargs)

    return drawn


@cache
def text_width(text: str, size: float, weight: str = "normal") -> float:
    """Width of one line of text in inches."""
    return TextPath((0, 0), text, size=size, prop={"family": "DejaVu Sans", "weight": weight}).get_extents().width / 72


def broken(title: str, width: float = WIDTH - 0.4) -> str:
    """The title in as many lines as it needs."""
    lines = [""]
    for word in title.split():
        longer = f"{lines[-1]} {word}".strip()
        if lines[-1] and text_width(longer, 12, "bold") > width:
            lines.append(word)
        else:
            lines[-1] = longer
    return "\n".join(lines)


def head_height(title: str) -> float:
    """Inches that the title takes at the top of a figure, with the space under it."""
    return 0.36 + 0.21 * (broken(title).count("\n") + 1)


def put_title(fig: Figure, title: str) -> None:
    """The claim, at the upper left corner."""
    at = (0.2 / fig.get_figwidth(), 1 - 0.18 / fig.get_figheight())
    fig.text(*at, broken(title), va="top", fontsize=12, weight="bold", color="#14181c")


def plural(n: int, word: str) -> str:
    return f"{n:,} {word}" if n == 1 else f"{n:,} {word}s"
