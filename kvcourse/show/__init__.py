"""Pictures, all drawn from `cache.positions()` and `cache.nbytes()`.

Text (returns a string to print, compared letter by letter by nbval)
    box_rows, crop_picture      boxes of cached positions, before and after a crop
    strip_text                  the strip, one character a position
    shape_box, shape_boxes      a tensor's shape in words
Figures (matplotlib, each with an alt text: `alt(fig)`)
    strip                       a row a step, a box a position
    staircase                   positions computed without a cache and with one
    ripple                      where keys change after an edit
    memory_ruler                GiB of cache against weights
    price_of_a_forward          seconds against tokens in one forward
Data
    Recorder, Step, count       what happened to each position in each step
    ModelMemory                 bytes of a model for the memory ruler
Code
    show_source                 a method of the package, at most 40 lines
"""

from .figures import ripple, staircase
from .picture import alt
from .price import price_of_a_forward
from .rulers import ModelMemory, memory_ruler
from .shapes import ShapeBox, shape_box, shape_boxes
from .source import Source, show_source
from .steps import MARKS, Recorder, Step, count
from .strip import strip
from .text import box_rows, crop_picture, strip_text

__all__ = [
    "MARKS",
    "ModelMemory",
    "Recorder",
    "ShapeBox",
    "Source",
    "Step",
    "alt",
    "box_rows",
    "count",
    "crop_picture",
    "memory_ruler",
    "price_of_a_forward",
    "ripple",
    "shape_box",
    "shape_boxes",
    "show_source",
    "staircase",
    "strip",
    "strip_text",
]
