"""A labelled box for a tensor: its name, and a word for each number of its shape. One colour per role."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from .picture import ROLE_COLOURS

_QUERY = ("batch", "q_heads", "q_len", "head_dim")
_CACHED = ("batch", "kv_heads", "kv_len", "head_dim")
DIMS = {"q": _QUERY, "k": _CACHED, "v": _CACHED}


@dataclass(frozen=True, repr=False)
class ShapeBox:
    """Text everywhere; in a notebook the same text in the colour of its role."""

    boxes: tuple[tuple[str, str], ...]  # (name, text), one a tensor

    def __repr__(self) -> str:
        return "\n".join(text for _, text in self.boxes)

    def _repr_html_(self) -> str:
        spans = (
            f'<span style="color:{ROLE_COLOURS.get(name, ROLE_COLOURS[""])}">{escape(text)}</span>'
            for name, text in self.boxes
        )
        return (
            '<pre style="font-family:monospace;line-height:1.2;background:#fff;display:inline-block;padding:.4em">'
            + "\n".join(spans)
            + "</pre>"
        )


def shape_box(name: str, tensor, dims: Sequence[str] | None = None) -> ShapeBox:
    """A box for one tensor (anything with a `.shape`).

    dims: a word for each dimension. Left out, q, k and v have the words of the course, and other names
    need them. Fewer dimensions than four are the last ones: (tokens, head_dim) for one head.
    """
    shape = tuple(tensor.shape)
    if dims is None:
        if name not in DIMS or not 1 <= len(shape) <= 4:
            raise ValueError(f"no words known for {name!r} of shape {shape}; give one a dimension: dims=(...)")
        dims = DIMS[name][4 - len(shape) :]
    if len(dims) != len(shape):
        raise ValueError(f"{name!r} has {len(shape)} dimensions {shape}, but dims has {len(dims)} words {tuple(dims)}")
    inside = "  ".join(f"{word} {size:,}" for word, size in zip(dims, shape, strict=True))
    width = max(len(inside), len(name) + 1) + 2
    top = f"┌ {name} ".ljust(width + 1, "─") + "┐"
    return ShapeBox(((name, f"{top}\n│{f' {inside} ':<{width}}│\n└{'─' * width}┘"),))


def shape_boxes(**tensors) -> ShapeBox:
    """Boxes one under another: `shape_boxes(q=q, k=k, v=v)`."""
    if not tensors:
        raise ValueError("no tensors given; call shape_boxes(q=q, k=k, v=v)")
    return ShapeBox(tuple(box for name, tensor in tensors.items() for box in shape_box(name, tensor).boxes))
