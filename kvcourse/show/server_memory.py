"""The memory of a server, slot by slot: a room for each request, or blocks that requests share."""

from collections.abc import Mapping

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.patheffects import withStroke

from .boxes import draw_box
from .picture import BLUE, DARK, GREY, WIDTH, add_axes, head_height, new_picture, plural, put_title, styled

LEFT, ROW, GAP = 0.35, 0.4, 0.3  # inches


def blocks_text(pool) -> str:
    """A `BlockPool` in text, a line a block: the requests that read it, ░ a token, · a slot that is wasted."""
    filled = pool.filled()
    owners = {block: " ".join(_owners(pool, block)) or "free" for block in range(len(pool.users))}
    width = max(map(len, owners.values()))
    lines = []
    for block, names in owners.items():
        tokens = filled.get(block, 0)
        slots = "░" * tokens + "·" * (pool.size - tokens) if block in filled else ""
        lines.append(f"block {block:2}  {names:{width}}  {slots}".rstrip())
    return "\n".join(lines)


@styled
def server_memory(lengths: Mapping[str, int], room: int, pool) -> Figure:
    """The same requests twice: above, each in a room of `room` slots; below, in the blocks of a `BlockPool`.

    lengths: {request: its tokens}. A filled box is a slot with a token, dotted ones are taken and empty, and a block
    that several requests read is darker. ValueError where a request is longer than its room.
    """
    if not lengths or max(lengths.values()) > room:
        raise ValueError(f"give at least one request, of {room} tokens (room) at most; got {dict(lengths)}")
    rooms, tokens = room * len(lengths), sum(lengths.values())
    filled, per_row = pool.filled(), max(room // pool.size, 1)
    taken = len(filled) * pool.size
    title = f"{plural(len(lengths), 'request')}: {rooms - tokens:,} of {rooms:,} slots wasted in rooms, "
    title += f"{pool.wasted:,} of {taken:,} in blocks of {pool.size}"
    rows = -(-len(pool.users) // per_row)
    tall, below = ROW * len(lengths), ROW * rows
    fig = new_picture(0.35 + below + GAP + tall + GAP + head_height(title))
    upper = add_axes(fig, LEFT, 0.35 + below + GAP, WIDTH - LEFT - 0.25, tall)
    lower = add_axes(fig, LEFT, 0.35, WIDTH - LEFT - 0.25, below)
    for ax, count, words in ((upper, len(lengths), f"rooms of {room} slots"), (lower, rows, "blocks")):
        ax.set(xlim=(0, per_row * pool.size), ylim=(count, 0))
        ax.axis("off")
        ax.annotate(words, (0, 0), (0, 5), textcoords="offset points", weight="bold", color=DARK)
    for row, (name, used) in enumerate(lengths.items()):
        _slots(upper, 0, row, used, room)
        _label(upper, 0, row, f"{name}: {used}")
    for block in range(len(pool.users)):
        row, column = divmod(block, per_row)
        _slots(lower, column * pool.size, row, filled.get(block), pool.size, pool.users[block] > 1)
        names = _owners(pool, block)
        _label(lower, column * pool.size, row, " ".join(names) or "free", DARK if names else GREY)
    put_title(fig, title)
    fig.text(LEFT / WIDTH, 0.1 / fig.get_figheight(), _legend(pool), color=GREY)
    users = ", ".join(f"block {block}: {' '.join(_owners(pool, block))}" for block in filled)
    fig.alt = f"{title}. {users}; {plural(len(pool.free), 'block')} free."
    return fig


def _legend(pool) -> str:
    shared = "; darker: read by several requests" if any(users > 1 for users in pool.users) else ""
    return f"filled: a token; dotted: a slot that is taken and empty{shared}"


def _slots(ax: Axes, x, y, used, count, shared=False) -> None:
    """`count` slots from x on, of which `used` hold a token; None: a free block, an empty frame."""
    for start, run, mark in ((0, used, "read"), (used or 0, count - (used or 0), "dropped")):
        if used is not None and run:
            draw_box(ax, x + start + 0.5, y + 0.5, mark, 0.7, run)
            if mark == "read" and shared:
                ax.patches[-1].set_facecolor(BLUE)
    ax.add_patch(Rectangle((x, y + 0.02), count, 0.96, facecolor="none", edgecolor=DARK, linewidth=1.2))


def _label(ax: Axes, x, y, words, colour=DARK) -> None:
    halo, place = [withStroke(linewidth=3, foreground="white")], {"xytext": (6, 0), "textcoords": "offset points"}
    ax.annotate(words, (x, y + 0.5), va="center_baseline", color=colour, weight="bold", path_effects=halo, **place)


def _owners(pool, block) -> list[str]:
    return [name for name, table in pool.tables.items() if block in table]
