"""Pictures, all drawn from `cache.positions()` and `cache.nbytes()`.

Text (returns a string to print, compared letter by letter by nbval)
    box_rows, crop_picture      boxes of cached positions, before and after a crop
    strip_text                  the strip, one character a position
    blocks_text                 the blocks of a server, one line each
    timeline_text               the offload timeline, one character a piece of time
    packing_text                codes laid end to end in bytes, bit by bit
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
    forgetting                  what comes back right, against the length of what was read
    state_pictures              the numbers of a state after each token
    constant_or_growing         bytes of a state beside those of keys and values
    slots                       slots of a fixed size, filled and empty, row by row
    plan_bars                   a plan: weights and each cache against the device
    server_memory               requests in rooms and in blocks, slot by slot
    closing_map                 bytes a token against the time of a step, a mark a cache
    memory_in_use               bytes in use, attempt after attempt, against the memory that there is
    number_line                 what number formats can represent, and where numbers land
    error_by_step               a mean error that falls from step to step
    where_keys_are_big          heat map token x channel, and perplexity against bits
Widgets (ipywidgets; states are computed beforehand, a move only draws)
    knee_explorer               the offload timeline for other links and depths
    Calculator                  which cache fits into a device beside a model's weights
    StepThrough                 which boxes remain after a read or a crop: guess and truth
    PromptSorter                the parts of a prompt in any order, and the tokens reused
    OutlierExplorer             one outlier in few bits: which groups pay
Data
    story, Move                 what a layer held through reads and crops, from a live cache
    Recorder, Step, count       what happened to each position in each step
    NumberLine                  values of a format, and numbers to land on them
    ModelMemory                 bytes of a model for the memory ruler
    OneStep, last_step          the last step of an offload timeline
Code
    show_source                 a method of the package, at most 40 lines
"""

from .batch import price_of_a_batch
from .budget import memory_in_use
from .calculator import Calculator, plan_bars
from .closing_map import closing_map
from .figures import ripple, staircase
from .forgetting import forgetting
from .heat import where_keys_are_big
from .knee import knee_explorer
from .numbers import NumberLine, error_by_step, number_line, packing_text
from .picture import alt
from .price import price_of_a_forward
from .rulers import ModelMemory, memory_ruler
from .server_memory import blocks_text, server_memory
from .shapes import ShapeBox, shape_box, shape_boxes
from .sinks import sinks
from .slots import slots
from .source import Source, show_source
from .states import constant_or_growing, state_pictures
from .steps import MARKS, Recorder, Step, count
from .strip import strip
from .text import box_rows, crop_picture, strip_text
from .timeline import OneStep, last_step, offload_timeline, timeline_text
from .widgets import Move, OutlierExplorer, PromptSorter, StepThrough, story

__all__ = [
    "Calculator",
    "MARKS",
    "ModelMemory",
    "Move",
    "NumberLine",
    "OneStep",
    "OutlierExplorer",
    "PromptSorter",
    "Recorder",
    "ShapeBox",
    "Source",
    "Step",
    "StepThrough",
    "alt",
    "blocks_text",
    "box_rows",
    "closing_map",
    "constant_or_growing",
    "count",
    "crop_picture",
    "error_by_step",
    "forgetting",
    "knee_explorer",
    "last_step",
    "memory_in_use",
    "memory_ruler",
    "number_line",
    "offload_timeline",
    "packing_text",
    "plan_bars",
    "price_of_a_batch",
    "price_of_a_forward",
    "ripple",
    "server_memory",
    "shape_box",
    "shape_boxes",
    "show_source",
    "sinks",
    "slots",
    "staircase",
    "state_pictures",
    "story",
    "strip",
    "strip_text",
    "timeline_text",
    "where_keys_are_big",
]
