"""What the loop of `generate()` keeps, and what of it enters the model: seen step by step."""

from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps

import torch

PREPARE = "prepare_inputs_for_generation"


@dataclass(frozen=True)
class Inputs:
    """The tensors of one step, by name. They are the ones in use, not copies."""

    loop: dict[str, torch.Tensor]  # what the loop keeps from step to step
    forward: dict[str, torch.Tensor]  # what enters the model, on the model's device


@contextmanager
def watch_inputs(model):
    """Look on while `model.generate()` runs.

    >>> with watch_inputs(model) as steps: ...
    gives a list with the `Inputs` of each step. It looks at `prepare_inputs_for_generation`, through which transformers
    sends every step, and where it moves to the model's device what the model needs and nothing else.
    """
    steps, prepare = [], getattr(model, PREPARE)
    own = vars(model).get(PREPARE)  # somebody is watching already

    @wraps(prepare)  # generate() reads the argument names
    def watch(input_ids, *args, **kwargs):
        inputs = prepare(input_ids, *args, **kwargs)
        steps.append(Inputs(_tensors({"input_ids": input_ids, **kwargs}), _tensors(inputs)))
        return inputs

    setattr(model, PREPARE, watch)
    try:
        yield steps
    finally:
        delattr(model, PREPARE) if own is None else setattr(model, PREPARE, own)


def shapes(tensors):
    """Names and shapes in one line, in the order of their names: "input_ids (1, 26), position_ids (1, 26)"."""
    return ", ".join(f"{name} {tuple(tensor.shape)}" for name, tensor in sorted(tensors.items()))


def _tensors(given):
    return {name: value for name, value in given.items() if isinstance(value, torch.Tensor)}
