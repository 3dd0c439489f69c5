"""The protocol: what a cache asks of every layer, whatever the layer keeps.

A layer answers three kinds of calls:

- *questions* (`get_seq_length`, `get_mask_sizes`, `positions`, `nbytes`, ...) change nothing;
- *checks* (`check_update`, `check_room`, `check_crop`) raise the error that the change would, and change nothing,
  so that a cache can ask all of its layers before it touches the first one;
- *changes* (`update`, `crop`, `reset`, `reorder_cache`, ...) are only called after the checks have passed.

Most of it is the same for all kinds, because each layer lists its `storages()`: bytes are a sum over them, a beam
reorder is a reorder of each. A new kind of layer writes `update`, `get_mask_sizes`, `positions`, a rule for `crop`.
"""

import torch

from .checks import batch_rows, check_same_layout


class Layer:
    """The part of a cache that belongs to one layer of the model. Keeps, drops and costs what the subclass says."""

    is_sliding = False
    is_linear = False
    is_dummy = False
    is_compileable = False  # True only where `update` may return slots that are not filled yet
    supports_early_init = True
    record_past = False  # whether entries that a window would drop are kept until the next crop

    def storages(self):
        """Every storage of this layer, each once."""
        return []

    # Questions

    @property
    def is_initialized(self):
        """Whether tensors exist, so that their batch, heads and dtype are known."""
        return any(storage.is_allocated for storage in self.storages())

    @property
    def batch_size(self):
        """Sequences held side by side; -1 while nothing is stored."""
        for storage in self.storages():
            if storage.is_allocated:
                return storage.batch_size
        return -1

    @property
    def is_croppable(self):
        """Whether `crop` can put this layer back as it was before the last tokens."""
        return True

    def get_max_length(self):
        """Tokens this layer can hold, or -1 where there is no limit."""
        return -1

    def nbytes(self, device=None, used=False):
        """Bytes of every buffer, spare room included: on one `device`, or all; with `used`, of the tokens alone."""
        return sum(storage.nbytes(device=device, used=used) for storage in self.storages())

    # Checks: each raises before anything has changed

    def check_update(self, key_states, value_states):
        """Raise if these states (batch, kv_heads, q_len, head_dim) cannot follow what is held."""

    def check_room(self, length):
        """Raise if a sequence of `length` tokens is more than this layer can take."""

    def check_crop(self, tokens_to_remove):
        """Raise if `crop(tokens_to_remove)` cannot be done. `tokens_to_remove` is 0 or negative here."""

    # Changes

    def reset(self):
        """Forget everything. The next update may bring another batch size."""
        for storage in self.storages():
            storage.clear()

    def reorder_cache(self, beam_idx):
        """Put rows `beam_idx` (batch,) of the batch in that order, as beam search asks."""
        rows = batch_rows(beam_idx, self.batch_size)
        for storage in self.storages():
            if storage.is_allocated:
                storage.reorder(rows)

    def batch_select_indices(self, indices):
        """Keep rows `indices` of the batch: a reorder in which the number of rows may change."""
        self.reorder_cache(indices)

    def batch_repeat_interleave(self, repeats):
        """Repeat each row of the batch `repeats` times: a, b -> a, a, b, b."""
        if self.is_initialized:
            self.reorder_cache(torch.arange(self.batch_size).repeat_interleave(repeats))

    def activate_past_recording(self):
        """Keep from now on what a crop could need. A layer that drops nothing has nothing to record."""

    # Following a twin: a copy of this layer on a device has taken new tokens, and this one has to catch up

    def news(self, twin, key_states, value_states):
        """Tensors of `twin` that `follow` needs: as few bytes as possible, since they cross a link."""
        return key_states, value_states

    def follow(self, twin, news):
        """Become what `twin` is, by its `news`."""
        self.update(*news)

    def __repr__(self):
        return type(self).__name__


class AttentionLayer(Layer):
    """A layer that holds one key and one value for each token it keeps.

    Subclasses set `_keys` and `_values`, two storages laid out (batch, kv_heads, kv_len, head_dim).
    """

    def storages(self):
        return [self._keys, self._values]

    @property
    def keys(self):
        """Keys held, (batch, kv_heads, kv_len, head_dim): a view without spare room. None while empty."""
        return self._keys.lend()

    @keys.setter
    def keys(self, tensor):
        self._keys.clear() if tensor is None else self._keys.set(tensor)

    @property
    def values(self):
        """Values held, (batch, kv_heads, kv_len, head_dim): a view without spare room. None while empty."""
        return self._values.lend()

    @values.setter
    def values(self, tensor):
        self._values.clear() if tensor is None else self._values.set(tensor)

    @property
    def device(self):
        """Where the tensors lie; None while empty."""
        return self._keys.buffer.device if self._keys.is_allocated else None

    @property
    def dtype(self):
        """Number format of the keys; None while empty."""
        return self._keys.buffer.dtype if self._keys.is_allocated else None

    def check_update(self, key_states, value_states):
        for name, new, storage in (("keys", key_states, self._keys), ("values", value_states, self._values)):
            if not isinstance(new, torch.Tensor):
                raise ValueError(f"{name} must be a tensor; got {type(new).__name__}")
            if new.ndim != 4:
                raise ValueError(f"{name} must be (batch, kv_heads, q_len, head_dim); got the shape {tuple(new.shape)}")
            if storage.is_allocated and self._is_bound:
                check_same_layout(name, new, storage.buffer)
        if key_states.shape[0] != value_states.shape[0] or key_states.device != value_states.device:
            raise ValueError(
                f"keys and values belong together; got a batch of {key_states.shape[0]} on {key_states.device} and of "
                f"{value_states.shape[0]} on {value_states.device}"
            )
        if key_states.shape[-2] != value_states.shape[-2]:
            raise ValueError(
                f"as many new keys as new values are needed; got {key_states.shape[-2]} keys and "
                f"{value_states.shape[-2]} values"
            )

    @property
    def _is_bound(self):
        """Whether what comes has to be laid out as the buffers are. Buffers that hold nothing can be made anew."""
        return self.get_seq_length() > 0

    def lazy_initialization(self, key_states, value_states):
        """Make the buffers for states of this layout, and put no token into them."""
        self.check_update(key_states, value_states)
        if not self.is_initialized:
            self._keys.append(key_states[:, :, :0])
            self._values.append(value_states[:, :, :0])
