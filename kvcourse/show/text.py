"""Pictures made of characters: a box for each cached position, and the text twin of the strip.

Every function takes positions (lists from `cache.positions(layer_idx)`) and returns a string to print.
All boxes of a picture stand on one grid: the same position is always in the same column.
"""

from collections.abc import Iterable, Mapping, Sequence

from .steps import MARKS, Step, check_positions, span

GAP = "    "  # between label and boxes, and between boxes and note
MOST_BOXES, MOST_CELLS = 32, 120  # a line longer than this wraps in a notebook


class _Grid:
    """Columns of one picture: where the box of a position starts, and how wide its inside is."""

    def __init__(self, labels: Iterable[str], rows: Iterable[Sequence[int]]):
        positions = [p for row in rows for p in row]
        self.first, last = (min(positions), max(positions)) if positions else (0, 0)
        if last - self.first >= MOST_BOXES:
            raise ValueError(
                f"positions {self.first} to {last} are {last - self.first + 1} boxes, more than the {MOST_BOXES} "
                "that fit on a line; show fewer tokens or use strip_text, one character a position"
            )
        self.digits = len(str(last))
        self.left = max((len(label) for label in labels), default=0) + len(GAP)

    def column(self, position: int) -> int:
        return self.left + (position - self.first) * (self.digits + 3)

    def draw(self, label: str, positions: Sequence[int]) -> list[str]:
        """Three lines: top edge, numbers (with the label before them), bottom edge."""
        if not positions:
            return ["", label.ljust(self.left) + "(empty)", ""]
        top, middle, bottom = "", label, ""
        edge, held = "─" * (self.digits + 2), set(positions)
        for p in positions:
            start = self.column(p)
            if p - 1 not in held:  # a run of boxes begins here
                top, middle, bottom = top.ljust(start) + "┌", middle.ljust(start) + "│", bottom.ljust(start) + "└"
            last = p + 1 not in held
            top += edge + ("┐" if last else "┬")
            middle += f" {p:>{self.digits}} │"
            bottom += edge + ("┘" if last else "┴")
        return [top, middle, bottom]

    def bracket(self, positions: Sequence[int], text: str) -> list[str]:
        """Two lines: a bracket under the boxes of these neighbouring positions, and a text under it."""
        start, end = self.column(positions[0]), self.column(positions[-1] + 1)
        half = (end - start - 2) // 2
        line = "╰" + "─" * half + "┬" + "─" * (end - start - 2 - half) + "╯"
        middle = start + 1 + half
        return [" " * start + line, " " * max(0, middle - len(text) // 2) + text]


def _with_notes(rows: Mapping[str, Sequence[int]], notes: Mapping[str, str] | None, grid: _Grid) -> list[str]:
    """The rows of boxes one under another, notes in one column to the right of the longest row."""
    for label in notes or {}:
        if label not in rows:
            raise ValueError(f"a note for {label!r}, but the rows are {', '.join(map(repr, rows))}")
    drawn = {label: grid.draw(label, positions) for label, positions in rows.items()}
    right = max(len(line) for lines in drawn.values() for line in lines) + len(GAP)
    for label, note in (notes or {}).items():
        drawn[label][1] = drawn[label][1].ljust(right) + note
    return [line for lines in drawn.values() for line in lines]


def box_rows(rows: Mapping[str, Sequence[int]], notes: Mapping[str, str] | None = None) -> str:
    """One row of boxes for each label: `{"full attention": cache.positions(0), ...}`, notes at the right."""
    if not rows:
        raise ValueError("no rows to draw; give {label: positions}")
    rows = {label: check_positions(positions, label) for label, positions in rows.items()}
    return "\n".join(_with_notes(rows, notes, _Grid(rows, rows.values())))


def crop_picture(
    before: Sequence[int],
    after: Mapping[str, Sequence[int]],
    removed: int,
    notes: Mapping[str, str] | None = None,
) -> str:
    """What `crop(-removed)` left: `before` with a bracket under the end, then one row for each layer kind.

    before: positions of a layer that still held everything; after: label -> positions now, all live.
    removed: tokens rolled back, 0 or more. notes: label -> words to the right of that row.
    """
    if isinstance(removed, bool) or not isinstance(removed, int) or removed < 0:
        raise ValueError(f"removed counts the tokens that were rolled back: 0 or more, got {removed!r}")
    if not after:
        raise ValueError("no rows after the crop; give {label: positions}")
    call = f"crop(-{removed})" if removed else "crop(0)"
    before = check_positions(before, "before")
    after = {label: check_positions(positions, label) for label, positions in after.items()}
    grid = _Grid([f"before {call}", *after], [before, *after.values()])
    lines = [" " * grid.left + "cached positions", *grid.draw(f"before {call}", before)]
    # The bracket marks tokens, so it ends at the last token and is `removed` positions wide.
    rolled_back = [p for p in before if p > before[-1] - removed]
    if rolled_back:
        lines += grid.bracket(rolled_back, "rolled back")
    lines += ["", f"after {call}", *_with_notes(after, notes, grid)]
    return "\n".join(lines)


def strip_text(steps: Sequence[Step]) -> str:
    """The strip in text: a row for each step, one character for each position, a legend of the marks used."""
    first, last = span(steps)
    if last - first >= MOST_CELLS:
        raise ValueError(
            f"positions {first} to {last} are more than the {MOST_CELLS} characters that fit on a line; "
            "record a shorter run, or draw strip(steps)"
        )
    left = max(len("position"), *(len(step.label) for step in steps)) + len(GAP)
    ruler = "position".ljust(left)
    for tick in range(first + -first % 5, last + 1, 5):
        ruler = ruler.ljust(left + tick - first) + str(tick)
    lines = [ruler]
    for step in steps:
        cells = (MARKS[step.marks[p]][0] if p in step.marks else " " for p in range(first, last + 1))
        lines.append((step.label.ljust(left) + "".join(cells)).rstrip())
    used = {mark for step in steps for mark in step.marks.values()}
    legend = GAP.join(f"{glyph} {words}" for mark, (glyph, words) in MARKS.items() if mark in used)
    return "\n".join([*lines, "", legend])
