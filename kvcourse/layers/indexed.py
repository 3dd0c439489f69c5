"""Sparse attention: one more small key for each token, by which the tokens worth looking at are chosen."""

from .dynamic import DynamicLayer
from .fixed import Counter, FixedBuffer
from .static import StaticLayer
from .storage import GrowingBuffer
from .tensors import trimmed


class IndexKeys:
    """What both kinds of indexed layers have beside their keys and values.

    Subclasses set `_indexer`, a storage of index keys, and `_position_ids`.
    """

    def storages(self):
        return [*super().storages(), self._indexer, self._position_ids]

    @property
    def is_initialized(self):
        """Whether keys and values have their buffers."""
        return self._keys.is_allocated

    @property
    def is_indexer_initialized(self):
        """Whether index keys have their buffer."""
        return self._indexer.is_allocated

    @property
    def indexer_position_ids(self):
        """Positions that the model left here, (position_dims, batch, kv_len), or None. Models set them themselves."""
        return self._position_ids.tensor

    @indexer_position_ids.setter
    def indexer_position_ids(self, tensor):
        self._position_ids.tensor = tensor


class DynamicIndexedLayer(IndexKeys, DynamicLayer):
    """Keys and values of every token, and one index key for each, shared by all heads.

    Keeps: all tokens, their index keys, and the positions that a model may leave beside them. Drops: nothing, until
    `crop`.
    Bytes: those of a `DynamicLayer`, and batch x index_head_dim x capacity x itemsize. The capacity of the index keys
    is their own and grows by the same rule. Positions are indices and not counted.
    In transformers: `DynamicIndexedLayer`.
    """

    def __init__(self):
        super().__init__()
        self._indexer = GrowingBuffer(dim=1)
        self._position_ids = PositionIds()

    def update_indexer(self, indexer_key_states):
        """Append index keys (batch, q_len, index_head_dim) and return all, (batch, kv_len, index_head_dim)."""
        held = self._indexer.buffer
        check_index_keys(indexer_key_states, None if held is None else held.shape)
        return self._indexer.append(indexer_key_states)

    @property
    def indexer_keys(self):
        """Index keys held, (batch, kv_len, index_head_dim). None while there are none."""
        return self._indexer.lend()

    @indexer_keys.setter
    def indexer_keys(self, tensor):
        self._indexer.clear() if tensor is None else self._indexer.set(tensor)

    def crop(self, tokens_to_remove):
        """Roll back the last `-tokens_to_remove` tokens, their index keys and their positions."""
        super().crop(tokens_to_remove)
        if tokens_to_remove and self._indexer.is_allocated:
            self._indexer.crop(max(self._indexer.length + tokens_to_remove, 0))
        self._position_ids.crop(tokens_to_remove)


class StaticIndexedLayer(IndexKeys, StaticLayer):
    """Keys, values and index keys in buffers that are made once for `max_cache_len` tokens.

    Keeps: all tokens, `max_cache_len` at most, their index keys, and positions beside them. Drops: nothing.
    Bytes: those of a `StaticLayer`, and batch x index_head_dim x max_cache_len x itemsize. Positions are not counted.
    In transformers: `StaticIndexedLayer`.
    """

    def __init__(self, max_cache_len):
        super().__init__(max_cache_len)
        # as if of one head, (batch, 1, slots, index_head_dim); counted apart, since they come before the keys
        self._indexer = FixedBuffer(max_cache_len, Counter())
        self._position_ids = PositionIds()

    def update_indexer(self, indexer_key_states):
        """Write index keys (batch, q_len, index_head_dim) into the next free slots.

        Returns all slots, (batch, max_cache_len, index_head_dim), the unfilled ones included.
        """
        check_index_keys(indexer_key_states, None)
        new, seen = indexer_key_states.unsqueeze(1), self._indexer.seen
        length = seen.read()
        self.check_room(length + new.shape[-2])
        if not self._indexer.suits(new):
            if length:
                check_index_keys(indexer_key_states, self._indexer.buffer[:, 0].shape)
            self._indexer.allocate(new)
            seen.start(new.device)
        self._indexer.unpack()
        self._indexer.write(length, new)
        seen.add(new.shape[-2])
        return self._indexer.buffer[:, 0]

    @property
    def indexer_keys(self):
        """All slots of index keys, (batch, max_cache_len, index_head_dim). None while there are none."""
        return self._indexer.view()[:, 0] if self._indexer.is_allocated else None

    def crop(self, tokens_to_remove):
        """Roll back the last `-tokens_to_remove` tokens, their index keys and their positions."""
        super().crop(tokens_to_remove)
        if tokens_to_remove and self._indexer.is_allocated:
            self._indexer.unpack()  # a copy is packed by the counter, so its slots come back before that changes
            self._indexer.seen.set(max(self._indexer.seen.read() + tokens_to_remove, 0))
        self._position_ids.crop(tokens_to_remove)

    def reset(self):
        super().reset()
        self._indexer.seen.restart()


class PositionIds:
    """Positions (position_dims, batch, kv_len) that a model keeps beside its index keys. Not counted in bytes."""

    batch_dim = 1

    def __init__(self):
        self.tensor = None

    @property
    def is_allocated(self):
        return self.tensor is not None

    @property
    def batch_size(self):
        return self.tensor.shape[1]

    def crop(self, tokens_to_remove):
        """Forget the positions of the last `-tokens_to_remove` tokens."""
        if self.tensor is not None and tokens_to_remove:
            self.tensor = self.tensor[..., : max(self.tensor.shape[-1] + tokens_to_remove, 0)]

    def clear(self):
        self.tensor = None

    def reorder(self, rows):
        self.tensor = self.tensor.index_select(1, rows.to(self.tensor.device))

    def nbytes(self, device=None, used=False):
        return 0

    def __deepcopy__(self, memo):
        memo[id(self)] = twin = type(self)()
        twin.tensor = None if self.tensor is None else trimmed(self.tensor)
        return twin

    def __getstate__(self):
        return {"tensor": None if self.tensor is None else trimmed(self.tensor)}


def check_index_keys(new, held):
    """ValueError unless `new` index keys (batch, q_len, index_head_dim) can follow those of the shape `held`."""
    if new.ndim != 3:
        raise ValueError(f"index keys must be (batch, q_len, index_head_dim); got the shape {tuple(new.shape)}")
    if held is not None and (new.shape[0], new.shape[2]) != (held[0], held[2]):
        raise ValueError(
            f"the cache holds index keys of batch {held[0]} and size {held[2]}; the new ones have batch {new.shape[0]} "
            f"and size {new.shape[2]}. Call batch_repeat_interleave before rows are repeated, and "
            "reset() before another text"
        )
