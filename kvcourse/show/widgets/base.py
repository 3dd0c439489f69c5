"""What every widget shares: controls above, one text below that a move writes anew, and a twin for static pages."""

from functools import cached_property
from html import escape

STYLE = {"description_width": "initial"}  # labels are written out in full
NARROW = STYLE | {"button_width": "auto"}
PRE = (
    "white-space: pre; line-height: 1.25; font-size: 13px; overflow-x: auto"  # a font size of its own: boxes must meet
)


class Widget:
    """Shown where it is the last line of a cell. ipywidgets is imported only then. A subclass has

    controls()  the ipywidgets: sliders, boxes to tick and buttons. All of them work from the keyboard in JupyterLab;
                lists do not: it takes the arrow keys for itself, and moves from cell to cell
    page()      what stands below the controls now; nothing is computed for it
    picture()   a figure for pages on which nothing can be moved
    text()      what the figure shows, in characters, from the same data
    """

    @cached_property
    def box(self):
        """The controls and the page below them: an ipywidgets VBox."""
        from ipywidgets import HTML, VBox

        self._view = HTML()
        box = VBox([*self.controls(), self._view])
        self.draw()
        return box

    def draw(self, *_):
        """Write the page anew. Made for `observe` and `on_click`, which pass something along."""
        self._view.value = f'<pre style="{PRE}">{escape(self.page())}</pre>'

    def watch(self, *controls):
        """Draw at each change of the value of these controls, once it is settled."""
        for control in controls:
            if hasattr(control, "continuous_update"):
                control.continuous_update = False
            control.observe(self.draw, "value")
        return controls

    def controls(self):
        raise NotImplementedError

    def page(self):
        return self.text()

    def _repr_mimebundle_(self, include=None, exclude=None):
        return self.box._repr_mimebundle_() | {"text/plain": repr(self)}
