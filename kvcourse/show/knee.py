"""Find the knee: the offload timeline once more, for another link or another depth of prefetching."""

from base64 import b64encode
from collections.abc import Mapping, Sequence
from functools import cache
from html import escape

from .timeline import last_step, offload_timeline


def knee_explorer(runs: Mapping[tuple, Sequence]):
    """A widget: a slider for the time of a fetch, buttons for the layers fetched ahead, and the timeline of that step.

    runs: timelines made beforehand, {(milliseconds of a fetch, layers ahead): events}, one for each combination. A move
    only draws. All pictures have one scale; it begins with the slowest link, one layer ahead.
    """
    import ipywidgets

    fetches, depths = (sorted({key[place] for key in runs}) for place in (0, 1))
    if missing := [(fetch, depth) for fetch in fetches for depth in depths if (fetch, depth) not in runs]:
        raise ValueError(f"give a timeline for each combination of fetch and depth; missing are {missing}")
    if not runs:
        raise ValueError("give timelines, {(milliseconds of a fetch, layers ahead): events}")
    until = max(last_step(timeline).seconds for timeline in runs.values())

    @cache
    def picture(fetch, depth):
        fig = offload_timeline({f"a fetch takes {fetch:g} ms, {depth} ahead": runs[fetch, depth]}, until)
        data = b64encode(fig._repr_mimebundle_()[0]["image/png"]).decode()
        return f'<img alt="{escape(fig.alt)}" src="data:image/png;base64,{data}">'

    style = {"description_width": "initial"}
    fetch = ipywidgets.SelectionSlider(
        options=[(f"{ms:g} ms", ms) for ms in fetches], value=fetches[-1], description="a fetch takes", style=style
    )
    depth = ipywidgets.ToggleButtons(
        options=depths, value=1 if 1 in depths else depths[0], description="layers ahead", style=style
    )
    fetch.continuous_update = False
    view = ipywidgets.HTML(picture(fetch.value, depth.value))
    for control in (fetch, depth):
        control.observe(lambda _: setattr(view, "value", picture(fetch.value, depth.value)), "value")
    return ipywidgets.VBox([fetch, depth, view])
