"""Widgets that a reader moves. All states are made beforehand, so a move only draws; each has a static twin.

step_through.py     which boxes remain? guess, then see what a live cache held
prompt_order.py     put the parts of a prompt in order, and count the tokens reused
outlier.py          one outlier, two ways of grouping: who pays
base.py             what they share
"""

from .outlier import OutlierExplorer
from .prompt_order import PromptSorter
from .step_through import Move, StepThrough, story

__all__ = ["Move", "OutlierExplorer", "PromptSorter", "StepThrough", "story"]
