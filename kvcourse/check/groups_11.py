"""Task 11a: one affine group, to codes and back."""

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from ..quantize import AffineFormat
from .groups_mistakes import MISTAKES, back, to_codes
from .task import Case, compare, task
from .withheld import run_without
from .words import Phrase, words

OWN = [(AffineFormat, "quantize"), (AffineFormat, "dequantize")]
EIGHT = [-0.6, 0.2, 0.9, -0.1, 0.5, 0.0, 0.7, -0.3]


class NanWatch(TorchDispatchMode):
    """Counts the nan that were made into whole numbers: which number comes out is up to the machine."""

    count = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        to_whole = isinstance(result, torch.Tensor) and not result.is_floating_point() and result.dtype != torch.bool
        if to_whole and function.overloadpacket.__name__ in ("_to_copy", "copy_"):
            source = args[-1] if function.overloadpacket.__name__ == "copy_" else args[0]
            self.count += int(source.isnan().sum()) if source.is_floating_point() else 0
        return result


def group(what, numbers, bits):
    """A case: what becomes of these numbers. A group of equal numbers has no step; it must come back exactly."""

    def play(answer, seen):
        values = torch.tensor(numbers)
        step = (values.max() - values.min()).item() / (2**bits - 1)
        given = values.clone()
        with NanWatch() as watch:
            result = run_without(OWN, answer[0], answer[0], given, bits)
        three = isinstance(result, (tuple, list)) and len(result) == 3
        seen[RETURNED] = Phrase("three results: codes, scale, offset") if three else result
        if not three:
            seen[RETURNED] = result if result is None else Phrase(words(result))
            return
        codes, scale, offset = result
        seen[WRITTEN] = int((given != values).sum())
        for name, number in (("scale", scale), ("offset", offset)):
            size = number.numel() if isinstance(number, torch.Tensor) else 1
            seen[f"numbers in {name}"] = size
        if step:
            seen["scale"] = round(float(torch.as_tensor(scale).flatten()[0]), 5)
        seen["0 / 0 made into a code"] = watch.count
        seen["codes"] = kind(codes, values)
        if seen["codes"] == kind(values.to(torch.uint8), values):
            seen["smallest and largest code"] = [int(codes.min()), int(codes.max())]
        restored = run_without(OWN, answer[1], answer[1], codes, scale, offset)
        fits = isinstance(restored, torch.Tensor) and restored.shape == values.shape
        seen[RESTORED] = restored if restored is None else Phrase(words(restored))
        if not fits:
            return
        label = "numbers off by more than half a step" if step else "numbers that are not exactly what they were"
        far = (~((restored - values).abs() <= step / 2 + 1e-5)).nonzero().flatten().tolist()
        first = f"{len(far)}; {numbers[far[0]]:g} is read back as {restored[far[0]].item():g}" if far else "none"
        seen[label] = Phrase(first)

    return Case(what, play, explain)


RETURNED = "what quantize_group returned"
RESTORED = "what restore_group returned"
WRITTEN = "numbers of `values` that were written over"


def explain(label, expected, came):
    """What is seen at once, whatever the answer looks like."""
    if label == WRITTEN:
        return "your function wrote into the caller's tensor: write `values - offset`, not `values -= offset`"
    if label == RESTORED and came is not None:
        return "a tensor as long as `codes` is restored: codes * scale + offset, with nothing around it"
    if label == "codes" and "numbers of type" not in came:
        return "the codes are a tensor as long as `values`: torch.tensor(..., dtype=torch.uint8)"
    if label == "codes" and "torch.int" in came:
        return "the codes are whole, but each takes more bytes than one: store them with .to(torch.uint8)"
    return None


def kind(codes, values):
    """What sort of codes these are, in words."""
    if not isinstance(codes, torch.Tensor) or codes.shape != values.shape:
        return Phrase(words(codes))
    broken = codes.is_floating_point() and not codes.equal(codes.round())
    return Phrase(f"{len(codes)} numbers of type {codes.dtype}" + (", not whole" if broken else ""))


CASES = [
    group("eight numbers from -0.6 to 0.9, 4 bits", EIGHT, 4),
    group("eight numbers from -0.8 to 0.7, 2 bits", [-0.8, 0.2, 0.7, -0.1, 0.4, 0.0, -0.6, -0.4], 2),
    group("numbers far from 0, from 10 to 12, 4 bits", [10.0, 10.3, 12.0, 11.1, 10.9], 4),
    group("numbers from -1.5 to 13.5, 4 bits", [-1.5, 0.4, 13.5, 7.2, 12.6], 4),
    group("four times the same number, 4 bits", [3.7, 3.7, 3.7, 3.7], 4),
    group("only zeros, 2 bits", [0.0, 0.0, 0.0], 2),
]


@task("11a", "quantize_group and restore_group on six groups, two of them of equal numbers")
def task_11a(quantize, restore):
    """`quantize(values, bits)` -> (codes, scale, offset), and `restore(codes, scale, offset)` -> values."""
    compare((quantize, restore), (to_codes, back), CASES, MISTAKES)
    return {
        "error": "no number is off by more than half a step, in all six groups",
        "codes": "uint8; the lowest number has code 0, the highest 2 ** bits - 1: no level is wasted",
        "equal numbers": "come back exactly",
    }
