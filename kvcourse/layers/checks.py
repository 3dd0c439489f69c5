"""Arguments, checked before anything changes: each refusal says what was given, what is possible and what to do."""

import operator

import torch


def whole(name, value, least=None):
    """`value` as an int, or a ValueError that names it. Takes whatever counts as one: a NumPy int, a tensor of one."""
    try:
        number = None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        number = None
    if number is None or (least is not None and number < least):
        raise ValueError(f"{name}={value!r}: give a whole number" + ("" if least is None else f" of {least} or more"))
    return number


def one_each(name, value, layers):
    """`value` as a list with an entry for each of `layers` layers, whether it is one number for all or such a list."""
    is_list = hasattr(value, "__iter__") and getattr(value, "ndim", 1) == 1
    entries = list(value) if is_list else [whole(name, value, least=1)] * layers
    if len(entries) != layers:
        raise ValueError(f"{name} lists {len(entries)} layers, the cache has {layers}")
    return entries


def entry(states, state_idx):
    """One of the states of a layer (a list, or a mapping from 0 on), or a ValueError that says how many it has."""
    if state_idx not in range(len(states)):
        raise ValueError(f"the layer has {len(states)} states, numbered from 0; there is no {state_idx!r}")
    return states[state_idx]


def batch_rows(indices, batch):
    """Row numbers (rows,) from a list, an index tensor or a mask over the batch. `batch` is -1 while unknown."""
    if isinstance(indices, slice) and batch >= 0:
        indices = list(range(*indices.indices(batch)))
    rows = torch.as_tensor(indices)
    rows = rows.long() if rows.numel() == 0 else rows
    if rows.dtype == torch.bool:
        if batch >= 0 and len(rows) != batch:
            raise ValueError(f"a mask over the batch has an entry for each row: {batch}, not {len(rows)}")
        rows = rows.nonzero().flatten()
    if rows.ndim != 1 or rows.is_floating_point():
        raise ValueError(f"rows of the batch must be a list of whole numbers; got {tuple(rows.shape)} {rows.dtype}")
    on_host = rows.device.type == "cpu"  # elsewhere a look at the values would wait for the device
    if on_host and batch >= 0 and rows.numel() and not (-batch <= int(rows.min()) and int(rows.max()) < batch):
        raise ValueError(f"the cache holds a batch of {batch}; it has no row {rows.tolist()}")
    return torch.where(rows < 0, rows + batch, rows).long()


def check_same_layout(name, new, held):
    """ValueError unless states `new` can follow `held`: same batch, heads, head_dim, device, and a common dtype."""
    batch, heads, _, head_dim = held.shape
    if new.shape[0] != batch:
        hint = (
            f"; call batch_repeat_interleave({new.shape[0] // batch}) on the cache first, "
            "as beams and several returned sequences need"
            if batch and new.shape[0] > batch and new.shape[0] % batch == 0
            else "; start from an empty cache, or call reset()"
        )
        raise ValueError(f"the cache holds a batch of {batch} and the new {name} a batch of {new.shape[0]}{hint}")
    if (new.shape[1], new.shape[3]) != (heads, head_dim):
        raise ValueError(
            f"the cache holds {name} of {heads} heads of size {head_dim}; the new ones have {new.shape[1]} heads "
            f"of size {new.shape[3]}: one cache serves one model"
        )
    if new.dtype != held.dtype:
        try:
            torch.promote_types(new.dtype, held.dtype)
        except RuntimeError:
            raise ValueError(
                f"the cache holds {name} of {held.dtype}, and the new ones are {new.dtype}: there is no common type; "
                "start from an empty cache, or convert them"
            ) from None
    if new.device != held.device:
        raise ValueError(f"the cache holds its {name} on {held.device}; the new ones are on {new.device}")
