"""Pictures, all drawn from `cache.positions()` and `cache.nbytes()`.

Text (returns a string to print, compared letter by letter by nbval)
    box_rows, crop_picture      boxes of cached positions, before and after a crop
    strip_text                  the strip, one character a position
    timeline_text               the offload timeline, one character a piece of time
    shape_box, shape_boxes      a tensor's shape in words
Figures (matplotlib, each with an alt text: `alt(fig)`)
    strip                       a row a step, a box a position
    staircase                   positions computed without a cache and with one
    ripple                      where keys change after an edit
    memory_ruler                GiB of cache against weights
    price_of_a_forward          seconds against tokens in one forward
    sinks                       mean attention by position, and bars of perplexity
    price_of_a_batch            tokens a second, and each user's wait, against the batch
    offload_timeline            what a link carries and a device computes in one step, waits shaded
    memory_in_use               bytes in use, attempt after attempt, against the memory that there is
Data
    Recorder, Step, count       what happened to each position in each step
    ModelMemory                 bytes of a model for the memory ruler
    OneStep, last_step          the last step of an offload timeline
Code
    show_source                 a method of the package, at most 40 lines
"""

from .batch import price_of_a_batch
from .budget import memory_in_use
from .figures import ripple, staircase
from .picture import alt
from .price import price_of_a_forward
from .rulers import ModelMemory, memory_ruler
from .shapes import ShapeBox, shape_box, shape_boxes
from .sinks import sinks
from .source import Source, show_source
from .steps import MARKS, Recorder, Step, count
from .strip import strip
from .text import box_rows, crop_picture, strip_text
from .timeline import OneStep, last_step, offload_timeline, timeline_text

__all__ = [
    "MARKS",
    "ModelMemory",
    "OneStep",
    "Recorder",
    "ShapeBox",
    "Source",
    "Step",
    "alt",
    "box_rows",
    "count",
    "crop_picture",
    "last_step",
    "memory_in_use",
    "memory_ruler",
    "offload_timeline",
    "price_of_a_batch",
    "price_of_a_forward",
    "ripple",
    "shape_box",
    "shape_boxes",
    "show_source",
    "sinks",
    "staircase",
    "strip",
    "strip_text",
    "timeline_text",
]
