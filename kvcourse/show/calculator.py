"""The memory calculator: make a model's cache fit into a device, without changing the model.

The widget shows a plan, redrawn at each move; `plan_bars` is its static picture, and the plan's own text is the twin of
both. A move is arithmetic: the parameters of the models are counted before the widget appears, and no model runs.
"""

from html import escape

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from .picture import ACCENT, BLUE, DARK, GREY, LIGHT, WIDTH, add_axes, head_height, new_picture, put_title, styled
from .widgets.base import NARROW, Widget

GIB = 2**30
MEMORIES = (4, 6, 8, 12, 16, 24, 32, 48, 80, 141)  # GiB that devices are sold with
CONTEXTS = tuple(2**n for n in range(9, 18))  # 512 to 131,072 tokens
BATCHES = (1, 2, 4, 8, 16, 32, 64)
BAR = "display:inline-block;height:1em"
WIDEST = 1.6  # of the device's memory; a longer bar is cut off there


class Calculator(Widget):
    """A list of models, sliders for device, context and users, two boxes to tick; below, which cache fits.

    models: {name: PublicModel}, by default `kvcourse.public.PUBLIC`. Weights and cache are in bfloat16. Every value is
    chosen from a list, so that an impossible one can't be; `MEMORIES` (GiB), `CONTEXTS`, `BATCHES`.

    The state: `model`, `memory`, `context`, `batch`, `exact`, `compiled`, and the `plan` for them.
    """

    def __init__(self, model="Llama-3.1-8B", memory=24, context=16_384, batch=8, models=None):
        from ..public import PUBLIC

        models = PUBLIC if models is None else models
        for name, value, choices in (
            ("model", model, tuple(models)),
            ("memory", memory, MEMORIES),
            ("context", context, CONTEXTS),
            ("batch", batch, BATCHES),
        ):
            if value not in choices:
                raise ValueError(f"{name}={value!r}: choose from {', '.join(map(str, choices))}")
        self.model, self.memory, self.context, self.batch = model, memory, context, batch
        self.exact = self.compiled = False
        self._models = {name: (public.config(), 2 * public.parameters()) for name, public in models.items()}

    @property
    def plan(self):
        """The `Plan` for what is chosen now."""
        from ..planning import plan

        config, weights = self._models[self.model]
        wishes = {"exact": self.exact, "compiled": self.compiled}
        return plan(config, self.memory * GIB, self.context, self.batch, weights=weights, **wishes)

    def controls(self):
        from ipywidgets import Checkbox, SelectionSlider, ToggleButtons

        wide = {"style": {"description_width": "8em"}, "layout": {"width": "32em"}}
        # buttons: JupyterLab takes the arrow keys away from a drop-down list
        models = ToggleButtons(options=list(self._models), value=self.model, description="model", style=NARROW)
        self.boxes = {"model": models}
        for name, words, choices, form in (
            ("memory", "device", MEMORIES, "{:,} GiB"),
            ("context", "context", CONTEXTS, "{:,} tokens"),
            ("batch", "users at once", BATCHES, "{:,}"),
        ):
            options = [(form.format(each), each) for each in choices]
            self.boxes[name] = SelectionSlider(
                options=options, value=getattr(self, name), description=words, continuous_update=True, **wide
            )
        self.boxes["exact"] = Checkbox(self.exact, description="the text must be exact", indent=False)
        self.boxes["compiled"] = Checkbox(self.compiled, description="the step will be compiled", indent=False)
        for name, box in self.boxes.items():
            box.observe(lambda change, name=name: self._set(name, change.new), "value")
        return list(self.boxes.values())

    def _set(self, name, value):
        setattr(self, name, value)
        self.draw()

    def draw(self, *_):
        """Write the page anew."""
        self._view.value = page(self.plan)

    def picture(self):
        """The same bars as a figure."""
        return plan_bars(self.plan)

    def text(self):
        """The plan as a table."""
        return repr(self.plan)

    def __repr__(self):
        return f"Calculator({self.model}, {self.memory} GiB, {self.context:,} tokens, batch {self.batch})"


def page(made) -> str:
    """A plan as HTML: the verdict, and for each cache a bar of weights and cache against the device."""
    from ..planning import in_units

    rows, edge = [], f"position:absolute;left:{100 / WIDEST:.1f}%;top:0;height:1.4em;border-left:2px dashed"
    for option in made.options:
        colours = (LIGHT, BLUE if option.fits else ACCENT)
        bar = "".join(
            f'<span style="{BAR};width:{100 * part / WIDEST:.1f}%;background:{colour}"></span>'
            for part, colour in zip(_shares(made, option), colours, strict=True)
        )
        fits = "fits" if option.fits_growing else "fits in one go" if option.fits else "too large"
        weight = "bold" if option is made.recommended else "normal"
        rows.append(
            f'<tr style="font-weight:{weight}"><td>{option.name}</td>'
            f'<td style="width:22em;position:relative;white-space:nowrap">{bar}<span style="{edge}"></span></td>'
            f'<td style="text-align:right">{in_units(option.nbytes)}</td><td>{fits}</td></tr>'
        )
    key = "light: weights; dark: cache, orange where it is too large; dashed: the end of the device"
    return f"<p><b>{escape(made.reason)}</b></p><table>{''.join(rows)}</table><p>{key}</p>"


def _shares(made, option):
    """(weights, cache) as shares of the device's memory, together no more than WIDEST."""
    weights = min(made.weights / made.memory, WIDEST)
    return weights, min(option.nbytes / made.memory, WIDEST - weights)


@styled
def plan_bars(made) -> Figure:
    """The static picture of a plan: for each cache a bar of weights and cache, a dashed line where the device ends."""
    from ..planning import in_units

    fitting = [option.name for option in made.options if option.fits]
    chosen = f"take {made.recommended.name}" if made.recommended else "none that grows"
    title = f"{len(fitting)} of {len(made.options)} caches fit beside the weights in {in_units(made.memory)}: {chosen}"
    row, left = 0.36, 1.45
    fig = new_picture(0.85 + row * len(made.options) + head_height(title))
    ax = add_axes(fig, left, 0.85, WIDTH - left - 1.3, row * len(made.options))
    ax.set(xlim=(0, WIDEST * made.memory / GIB), ylim=(len(made.options) - 0.5, -0.5))
    for y, option in enumerate(made.options):
        weights, cache = (share * made.memory / GIB for share in _shares(made, option))
        ax.barh(y, weights, 0.66, color=LIGHT, edgecolor=BLUE)
        colour = BLUE if option.fits else "white"
        ax.barh(y, cache, 0.66, left=weights, color=colour, edgecolor=BLUE, hatch=None if option.fits else "////")
        words = in_units(option.nbytes)
        at = {"xytext": (6, 0), "textcoords": "offset points", "va": "center", "annotation_clip": False}
        ax.annotate(words, (WIDEST * made.memory / GIB, y), color=DARK if option.fits else GREY, **at)
    ax.axvline(made.memory / GIB, color=ACCENT, linestyle=(0, (5, 3)), linewidth=2)
    ax.set_yticks(range(len(made.options)), [option.name for option in made.options])
    for label, option in zip(ax.get_yticklabels(), made.options, strict=True):
        label.set_weight("bold" if option is made.recommended else "normal")
    ax.tick_params(axis="y", length=0)
    ax.xaxis.set_major_locator(MaxNLocator(8, integer=True))
    ax.set_xlabel("GiB on the device", loc="left")
    key = f"light: weights, {in_units(made.weights)}; blue: cache; hatched: cache that does not fit; dashed: the device"
    put_title(fig, title)
    fig.text(0.2 / WIDTH, 0.14 / fig.get_figheight(), key, color=GREY)
    bars = ", ".join(f"{o.name} {in_units(o.nbytes)}{'' if o.fits else ', too large'}" for o in made.options)
    fig.alt = f"{title}. Weights {in_units(made.weights)}; cache: {bars}."
    return fig
