"""Put the parts of a prompt in order, and see how many leading tokens a few requests find again."""

from collections.abc import Callable, Mapping, Sequence
from itertools import permutations
from math import ceil

from ..picture import plural
from ..steps import MARKS, Step
from ..strip import strip
from .base import NARROW, Widget

MOST_PARTS = 5  # 120 orders
BAR = 56  # characters of the longest prompt


class PromptSorter(Widget):
    """A button for each part, "earlier" and "later" for the one that is chosen, and a bar for each request.

    requests: {part: text} of each request, all with the same parts; their order is the one shown to begin with.
    ids_of: text -> token ids of it. Every order is cut into tokens when the widget is made: a move only draws.
    block: only whole blocks of so many tokens are found again, as long as the box is ticked.

    The state: `order`, `blocks` (is the box ticked?), `reused()`.
    """

    def __init__(self, requests: Sequence[Mapping[str, str]], ids_of: Callable, block: int = 16):
        from ...bill import usage

        parts = tuple(requests[0]) if requests else ()
        if len(requests) < 2 or not 2 <= len(parts) <= MOST_PARTS:
            raise ValueError(
                f"give two requests or more, of 2 to {MOST_PARTS} parts; got {len(requests)} of {len(parts)}"
            )
        if wrong := [place for place, request in enumerate(requests) if set(request) != set(parts)]:
            raise ValueError(f"all requests have the same parts, {', '.join(parts)}; not so number {wrong[0]}")
        self.order, self.blocks, self.block = parts, True, block
        self._usages = {}
        for order in permutations(parts):
            prompts = ["".join(request[part] for part in order) for request in requests]
            self._usages[order] = usage([(ids_of(prompt), 0) for prompt in prompts], block=1)

    def reused(self, order=None):
        """Leading tokens that each request finds again, in this order or in another one."""
        from ...bill import whole_blocks

        found = [one.cached for one in self._usages[order or self.order]]
        return [whole_blocks(tokens, self.block) for tokens in found] if self.blocks else found

    def tokens(self):
        """Tokens of each prompt."""
        return [one.fresh + one.cached for one in self._usages[self.order]]

    def best(self):
        """The most that any order reuses, over all requests."""
        return max(sum(self.reused(order)) for order in self._usages)

    def controls(self):
        from ipywidgets import Button, Checkbox, HBox, ToggleButtons

        self.parts = ToggleButtons(options=self.order, description="part", style=NARROW)  # arrow keys move cells in Lab
        self.earlier, self.later = Button(description="earlier"), Button(description="later")
        self.whole = Checkbox(value=self.blocks, description=f"whole blocks of {self.block} only", indent=False)
        self.earlier.on_click(lambda _: self._move(-1))
        self.later.on_click(lambda _: self._move(1))
        self.whole.observe(self._tick, "value")
        return [self.parts, HBox([self.earlier, self.later]), self.whole]

    def _move(self, by):
        """The chosen part changes places with its neighbour and stays chosen; at an end nothing happens."""
        chosen, order = self.parts.value, list(self.order)
        here = order.index(chosen)
        there = here + by
        if not 0 <= there < len(order):
            return
        order[here], order[there] = order[there], order[here]
        self.order = self.parts.options = tuple(order)
        self.parts.value = chosen
        self.draw()

    def _tick(self, change):
        self.blocks = change.new
        self.draw()

    def _claim(self):
        again, all_tokens = sum(self.reused()), sum(self.tokens())
        return f"{', '.join(self.order)}: {again:,} of {plural(all_tokens, 'token')} reused"

    def picture(self):
        """A row for each request: light what is found again, dark what is computed."""
        steps = []
        for number, (again, tokens) in enumerate(zip(self.reused(), self.tokens(), strict=True), 1):
            marks = {p: "read" if p < again else "computed" for p in range(tokens)}
            steps.append(Step(f"request {number}", marks))
        return strip(steps, self._claim()[:1].upper() + self._claim()[1:])

    def text(self):
        """The same bars in characters, with their numbers."""
        tokens = self.tokens()
        each = ceil(max(tokens) / BAR)
        lines = [self._claim(), ""]
        for number, (again, n) in enumerate(zip(self.reused(), tokens, strict=True), 1):
            light, full = round(again / each), round(n / each)
            bar = MARKS["read"][0] * light + MARKS["computed"][0] * (full - light)
            lines.append(f"request {number:<2}  {bar:{BAR}}  {again:3,} of {n:,}")
        legend = "    ".join(f"{glyph} {words}" for glyph, words in (MARKS["read"], MARKS["computed"]))
        lines += ["", f"{legend}    a character is {plural(each, 'token')}"]
        return "\n".join([*lines, f"Of all {len(self._usages)} orders the best reuses {self.best():,}."])

    def __repr__(self):
        return f"PromptSorter({', '.join(self.order)})"
