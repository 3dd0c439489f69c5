"""What a check has to say, as text and as a coloured box."""

import html
import re
import sys
from dataclasses import dataclass

STATES = {  # state -> (words in the headline, colour)
    "passed": ("passed", "#2e7d32"),
    "wrong": ("not yet", "#c62828"),
    "unfinished": ("not finished yet", "#546e7a"),
}


@dataclass(frozen=True)
class Verdict:
    """The result of one check. `lines`: (label, sentence) pairs, in the order in which they are read."""

    task: str
    state: str
    lines: tuple = ()

    @property
    def passed(self):
        return self.state == "passed"

    def __getitem__(self, label):
        """The sentence with this label; "" where there is none."""
        return dict(self.lines).get(label, "")

    def __repr__(self):
        width = max((len(label) for label, _ in self.lines), default=0)
        head = f"{self.task}: {STATES[self.state][0]}"
        return "\n".join([head, *(f"  {label:{width}}  {sentence}" for label, sentence in self.lines)])

    def _repr_html_(self):
        headline, colour = STATES[self.state]
        rows = "".join(
            f'<div style="display:flex"><span style="flex:0 0 6em;opacity:.75">{html.escape(label)}</span>'
            f"<span>{_marked(sentence)}</span></div>"
            for label, sentence in self.lines
        )
        # White on the colour reads well in a light theme and in a dark one.
        badge = f'<span style="background:{colour};color:#fff;padding:.1em .5em;border-radius:.3em">{headline}</span>'
        head = f'<div style="margin-bottom:.2em"><b>{html.escape(self.task)}: {badge}</b></div>'
        return f'<div style="border-left:5px solid {colour};padding:.3em .8em">{head}{rows}</div>'

    def show(self):
        """In a notebook the box, elsewhere the text."""
        shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
        if shell is None:
            print(self)
        else:
            from IPython.display import display

            display(self)


def _marked(sentence):
    """The sentence as HTML, with `code` set as code."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", html.escape(sentence))
