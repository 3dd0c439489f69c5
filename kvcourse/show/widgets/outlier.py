"""One large value among small ones, in few bits: whose error grows, and with which way of grouping."""

from collections.abc import Sequence

from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from ..picture import ACCENT, DARK, WIDTH, add_axes, head_height, new_picture, plural, put_title, styled
from ..states import SIZES
from .base import STYLE, Widget

LEAST = 0.02  # usual sizes; an error below that is none, whatever it was before
GROUPINGS = ("per token", "per channel")
SHADES = ((0.05, "··"), (0.2, "░░"), (0.5, "▒▒"), (1.0, "▓▓"), (float("inf"), "██"))


class OutlierExplorer(Widget):
    """Sliders for the outlier's size, token and channel; one value or a whole channel; the grouping; the bits.

    values: a tensor (tokens, channels), 2 to 12 each; by default 8 x 8 made-up ones. The outlier is added to one of
    them, or to a whole channel, as the keys of real models have it: `size` times the mean size of the values. A group
    is a token, or a channel. A group *pays* if its mean error is more than twice what it is without the outlier.
    backend, bits: see `kvcourse.quantize`.

    All combinations are quantized when the widget is made. The state: `size`, `token`, `channel`, `whole`, `grouping`,
    `bits`; for all of them bad values can't be chosen.
    """

    def __init__(
        self, values=None, bits: Sequence[int] = (2, 4), sizes: Sequence[int] = (0, 2, 4, 8, 16), backend="quanto"
    ):
        import torch

        from ...quantize import make_format

        if values is None:
            t, c = torch.arange(8.0)[:, None], torch.arange(8.0)
            values = ((5 * t * t + 3 * c * c + 7 * t * c + t + 2 * c) % 17 - 8) / 4  # no pattern that meets the eye
        if values.ndim != 2 or min(values.shape) < 2 or max(values.shape) > 12:
            raise ValueError(f"give values of shape (tokens, channels), 2 to 12 each; got {tuple(values.shape)}")
        if len(sizes) < 2 or sizes[0] != 0:
            raise ValueError(f"sizes begin with 0, no outlier, and have another one; got {list(sizes)}")
        self.sizes, self.all_bits = tuple(sizes), tuple(bits)
        self.tokens, self.channels = values.shape
        self.size, self.token, self.channel = self.sizes[-1], self.tokens // 2, self.channels // 2
        self.whole, self.grouping, self.bits = False, GROUPINGS[0], self.all_bits[0]
        self._usual = values.abs().mean().item()
        # Every place, size and kind of outlier at once, along the batch: groups never cross it.
        shape = (len(self.sizes), self.tokens, self.channels, 2)
        x = values.float().expand(*shape, -1, -1).clone()
        for s, size in enumerate(self.sizes):
            for t in range(self.tokens):
                for c in range(self.channels):
                    x[s, t, c, 0, t, c] += size * self._usual
                    x[s, t, c, 1, :, c] += size * self._usual
        flat = x.flatten(0, 3).unsqueeze(1)  # (batch, 1 head, tokens, channels)
        self._errors = {}
        for n in self.all_bits:
            for grouping, group in zip(GROUPINGS, (self.channels, self.tokens), strict=True):
                number_format = make_format(backend, n, grouping, group)
                read = number_format.dequantize(number_format.quantize(flat), torch.float32)
                self._errors[n, grouping] = ((read - flat).abs() / self._usual).view(*shape, *values.shape)

    def errors(self, grouping=None, whole=None, size=None):
        """Error of each value, (tokens, channels), in units of the mean size of the values."""
        s = self.sizes.index(self.size if size is None else size)
        whole = self.whole if whole is None else whole
        return self._errors[self.bits, grouping or self.grouping][s, self.token, self.channel, int(whole)]

    def group_errors(self, grouping=None, whole=None, size=None):
        """Mean error of each group: a list with a number for each token, or for each channel."""
        grouping = grouping or self.grouping
        return self.errors(grouping, whole, size).mean(1 if grouping == GROUPINGS[0] else 0).tolist()

    def payers(self, grouping=None, whole=None):
        """Groups whose mean error is more than twice what it is without the outlier."""
        pairs = zip(self.group_errors(grouping, whole), self.group_errors(grouping, whole, size=0), strict=True)
        return [group for group, (now, without) in enumerate(pairs) if now > max(2 * without, LEAST)]

    def controls(self):
        from ipywidgets import Checkbox, IntSlider, SelectionSlider, ToggleButtons

        names = [(f"{size} times" if size else "no outlier", size) for size in self.sizes]
        self.size_ = SelectionSlider(options=names, value=self.size, description="outlier", style=STYLE)
        self.token_ = IntSlider(self.token, 0, self.tokens - 1, description="token")
        self.channel_ = IntSlider(self.channel, 0, self.channels - 1, description="channel")
        self.whole_ = Checkbox(self.whole, description="in every token of the channel", indent=False)
        self.grouping_ = ToggleButtons(options=GROUPINGS, value=self.grouping, description="a group is")
        self.bits_ = ToggleButtons(options=self.all_bits, value=self.bits, description="bits")
        return self.watch(self.size_, self.token_, self.channel_, self.whole_, self.grouping_, self.bits_)

    def draw(self, *_):
        for name in ("size", "token", "channel", "whole", "grouping", "bits"):
            setattr(self, name, getattr(self, f"{name}_").value)
        super().draw()

    def _outlier(self):
        where = f"channel {self.channel}" if self.whole else f"token {self.token}, channel {self.channel}"
        return f"an outlier of {self.size} times the usual size in {where}" if self.size else "no outlier"

    def _is_outlier(self, token, channel, whole):
        return self.size > 0 and channel == self.channel and (whole or token == self.token)

    def text(self):
        """The errors as shades, the mean of each group beside or below it, and who pays."""
        errors, groups, paying = self.errors(), self.group_errors(), self.payers()
        rows = self.grouping == GROUPINGS[0]
        lines = [f"{self.bits} bits, {self.grouping}; {self._outlier()}", ""]
        lines.append("channel  " + "".join(f"{c:6}" for c in range(self.channels)) + "    mean error" * rows)
        for t, line in enumerate(errors.tolist()):
            cells = (self._shade(e, self._is_outlier(t, c, self.whole)) for c, e in enumerate(line))
            end = f"{groups[t]:9.2f}" + "  pays" * (t in paying) if rows else ""
            lines.append(f"token {t:<3}" + "".join(f"{cell:>6}" for cell in cells) + end)
        if not rows:
            lines.append("error    " + "".join(f"{error:6.2f}" for error in groups))
            if paying:
                lines.append(" " * 9 + "".join("  pays" if c in paying else " " * 6 for c in range(self.channels)))
        limits = [f"{shade} under {limit:g}" for limit, shade in SHADES[:-1]] + [f"{SHADES[-1][1]} more"]
        lines += ["", "error in usual sizes: " + "  ".join(limits), "[ ] the outlier", ""]
        verb = "pays" if len(paying) == 1 else "pay"
        lines.append(
            f"{len(paying)} of {plural(len(groups), 'group')} {verb}: more than twice the error without the outlier."
        )
        lines.append(f"Mean error of all: {errors.mean():.2f}, without the outlier {self.errors(size=0).mean():.2f}")
        return "\n".join(line.rstrip() for line in lines)

    @staticmethod
    def _shade(error, outlier):
        shade = next(shade for limit, shade in SHADES if error < limit)
        return f"[{shade}]" if outlier else f"{shade} "

    @styled
    def picture(self) -> Figure:
        """Four heat maps of the error: one value or a whole channel, grouped per token or per channel."""
        panels = [(grouping, whole) for whole in (False, True) for grouping in GROUPINGS]
        one, other, many, none = (len(self.payers(*panel)) for panel in panels)
        title = (
            f"{self.bits} bits, {self.size} times the usual size: one large value makes {one} of {self.tokens} groups "
            f"pay per token, {other} of {self.channels} per channel; a large channel {many} and {none}"
        )
        side, gap, below = 1.75, 0.55, 0.75
        fig = new_picture(below + 2 * side + gap + 0.3 + head_height(title))
        top = max(self.errors(*panel).max().item() for panel in panels) or 1.0
        for grouping, whole in panels:
            left, bottom = 1.5 + GROUPINGS.index(grouping) * (side + 1.4), below + (not whole) * (side + gap)
            self._draw_panel(add_axes(fig, left, bottom, side, side), grouping, whole, top)
        for ax, words in ((fig.axes[0], "one large value"), (fig.axes[2], "a large channel")):
            ax.set_ylabel(f"{words}\n\ntoken", color=DARK)
        for ax in fig.axes[2:]:
            ax.set_xlabel("channel")
        put_title(fig, title)
        words = f"error: white 0, darkest {top:.2f} usual sizes; dot: the outlier; frame: a group that pays"
        fig.text(0.2 / WIDTH, 0.12 / fig.get_figheight(), words)
        fig.alt = f"{title}. Four heat maps of the error of {self.tokens} tokens x {self.channels} channels."
        return fig

    def _draw_panel(self, ax, grouping, whole, top):
        """One heat map: the darkest colour is `top`."""
        errors, paying = self.errors(grouping, whole), self.payers(grouping, whole)
        ax.imshow(errors.numpy(), cmap=SIZES, vmin=0, vmax=top, aspect="auto", interpolation="nearest")
        ax.set(xticks=range(0, self.channels, 2), yticks=range(0, self.tokens, 2))
        ax.spines[:].set_visible(True)
        words = f"{grouping}: {len(paying)} of {len(self.group_errors(grouping))} pay"
        ax.annotate(words, (0, 1), (0, 5), "axes fraction", textcoords="offset points", weight="bold", color=DARK)
        frame = {"fill": False, "edgecolor": ACCENT, "linewidth": 1.6, "clip_on": False}
        for group in paying:
            corner, size = ((-0.5, group - 0.5), (self.channels, 1))
            if grouping == GROUPINGS[1]:
                corner, size = ((group - 0.5, -0.5), (1, self.tokens))
            ax.add_patch(Rectangle(corner, *size, **frame))
        outliers = [t for t in range(self.tokens) if self._is_outlier(t, self.channel, whole)]
        ax.plot([self.channel] * len(outliers), outliers, "o", color=ACCENT, markersize=4)

    def __repr__(self):
        return f"OutlierExplorer({self.tokens} tokens, {self.channels} channels)"
