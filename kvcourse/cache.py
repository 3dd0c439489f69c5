"""Cache: the list of layers that a model talks to.

A model calls `cache.update(keys, values, layer_idx)` once a layer and step, and asks the cache how long its masks have
to be. Everything else is for those who run the model: rolling back, reordering beams, counting bytes. The cache checks
every layer before it changes the first one, so that a refused operation leaves all of them as they were.
"""

import torch

from . import offload
from .hf import CacheBase
from .layers.checks import batch_rows, entry, one_each, whole


class Cache(CacheBase):
    """A list of layers, and the operations that concern them all.

    `layers`: layers made beforehand. Or `layer_class_to_replicate`: a class, of which one layer is made for each new
    index that `update` meets. Mirrors `transformers.Cache`, from which it inherits its type and no behaviour.
    """

    _has_room_for = 0  # tokens that every layer is known to have room for

    def __init__(self, layers=None, layer_class_to_replicate=None, offloading=False, offload_only_non_sliding=True):
        if (layers is None) == (layer_class_to_replicate is None):
            raise ValueError("give exactly one of `layers` and `layer_class_to_replicate`")
        self.layers = [] if layers is None else layers
        self.layer_class_to_replicate = layer_class_to_replicate
        self.offloading = offloading
        self.only_non_sliding = offload_only_non_sliding
        self.offloader = offload.Offloader(only_non_sliding=offload_only_non_sliding) if offloading else None

    # What a model calls

    def update(self, key_states, value_states, layer_idx, *args, **kwargs):
        """Add new tokens to one layer and return what its attention has to look at.

        `key_states`, `value_states`: (batch, kv_heads, q_len, head_dim). Returns keys and values of
        (batch, kv_heads, kv_len, head_dim), kv_len as announced by `get_mask_sizes`. A refused update
        (ValueError) changes nothing. Neither does one for which an emulated device has no memory
        (torch.OutOfMemoryError).
        """
        known = len(self.layers)
        layer = self._layer(layer_idx, create=True)
        try:
            if self.offloading or offload.active:
                return offload.update(self, self._number(layer_idx), key_states, value_states, *args, **kwargs)
            layer.check_update(key_states, value_states)
            self.check_room(layer_idx, key_states.shape[-2])
        except BaseException:
            del self.layers[known:]  # layers that were made for this update alone
            raise
        return layer.update(key_states, value_states, *args, **kwargs)

    def check_room(self, layer_idx, tokens):
        """Raise if so many more tokens in that layer make a text that any layer has no room for."""
        layer = self.layers[layer_idx]
        length = layer.get_seq_length() + tokens
        if torch.compiler.is_compiling():
            if layer is self._first_with_tokens():  # asked once a step: in a graph each question is an operation
                self._check_room_everywhere(length)
            return
        layer.check_room(length)
        if length > self._has_room_for:  # room never shrinks, so one layer of a step asks for all
            self._check_room_everywhere(length)
            self._has_room_for = length

    def _check_room_everywhere(self, length):
        for layer in self.layers:
            layer.check_room(length)

    def prefetch(self, layer_idx, only_non_sliding=True):
        """Bring the next offloaded layer, in a circle from `layer_idx` on, to the device. `update` does so itself."""
        self._need_offloading("prefetch").prefetch(self.layers, layer_idx, only_non_sliding)

    def offload(self, layer_idx, only_non_sliding=True):
        """Take a layer off the device. `update` does so itself when other layers need the room."""
        offloader = self._need_offloading("offload")
        layer = self._layer(layer_idx)
        if layer is not None and not (only_non_sliding and layer.is_sliding):
            offloader.evict(self._number(layer_idx))

    def _need_offloading(self, method):
        if getattr(self, "offloading", False):
            return self.offloader
        raise RuntimeError(f"{method}: this cache stays on its device; make it with offloading=True")

    def get_seq_length(self, layer_idx=0):
        """Tokens seen by a layer. Asked without an index, by the first layer that counts tokens."""
        layer = self._attention_layer(layer_idx)
        return 0 if layer is None else layer.get_seq_length()

    def get_query_offset(self, layer_idx=0):
        """Position of the first token of the next forward: the tokens seen so far."""
        return self.get_seq_length(layer_idx)

    def get_mask_sizes(self, query_length, layer_idx=0):
        """(length, offset) of the keys that the next `update` of `query_length` tokens returns."""
        if not isinstance(query_length, int):
            query_length = whole("query_length", query_length, least=0)
        layer = self._attention_layer(layer_idx)
        return (query_length, 0) if layer is None else layer.get_mask_sizes(query_length)

    def get_max_length(self, layer_idx=None):
        """Tokens that fit, in one layer or in the whole cache; -1 where there is no limit."""
        if layer_idx is not None:
            layer = self._layer(layer_idx)
            return -1 if layer is None else layer.get_max_length()
        limits = [layer.get_max_length() for layer in self.layers if not (layer.is_linear or layer.is_dummy)]
        return -1 if not limits or -1 in limits else max(limits)

    # What a model calls where a layer keeps states (linear attention, Mamba, short convolutions) or index keys

    def update_conv_state(self, conv_states, layer_idx, state_idx=0, **kwargs):
        """Add convolution inputs (batch, channels, q_len) to one layer; return what its convolution looks at.

        `conv_kernel_size=...` says how many inputs to keep; a model gives it at every call.
        """
        layer = self._layer_with("update_conv_state", layer_idx)
        # Without the kernel's size, models hand over a window that they made themselves: then one token is certain.
        self._check_room_for_states(layer, conv_states.shape[-1] if kwargs.get("conv_kernel_size") else 1)
        return self._change(layer, "update_conv_state", conv_states, state_idx, **kwargs)

    def update_recurrent_state(self, recurrent_states, layer_idx, state_idx=0, **kwargs):
        """Replace the recurrent state (batch, ...) of one layer; return the state held, which may be written to."""
        layer = self._layer_with("update_recurrent_state", layer_idx)
        self._check_room_for_states(layer, 1)
        return self._change(layer, "update_recurrent_state", recurrent_states, state_idx, **kwargs)

    def update_indexer(self, indexer_key_states, layer_idx):
        """Add index keys (batch, q_len, index_head_dim) to one layer; return all, (batch, kv_len, index_head_dim)."""
        return self._change(self._layer_with("update_indexer", layer_idx), "update_indexer", indexer_key_states)

    def _check_room_for_states(self, layer, tokens):
        """Raise if so many tokens are too many for an attention layer that comes after these states.

        States have no limit themselves. But a model that is refused keys and values would have changed them already.
        """
        first = self._first_with_tokens()
        if first is None or torch.compiler.is_compiling():
            return
        for earlier in self.layers:
            if earlier is layer:
                return self._check_room_everywhere(first.get_seq_length() + tokens)
            if earlier is first:
                return  # it has asked for all of this step

    def _change(self, layer, method, *args, **kwargs):
        """Let a layer do what only layers of its kind can; an emulated device counts the bytes first."""
        if offload.active:
            return offload.change(self, layer, method, *args, **kwargs)
        return getattr(layer, method)(*args, **kwargs)

    def get_conv_state(self, layer_idx, state_idx=0):
        """Convolution inputs that a layer holds, (batch, channels, kernel_size); None before the first forward."""
        layer = self._layer_with("update_conv_state", layer_idx, create=False)
        return None if layer is None else entry(layer.conv_states, state_idx)

    def get_recurrent_state(self, layer_idx, state_idx=0):
        """Recurrent state that a layer holds, (batch, ...); None before the first forward."""
        layer = self._layer_with("update_recurrent_state", layer_idx, create=False)
        return None if layer is None else entry(layer.recurrent_states, state_idx)

    def has_previous_state(self, layer_idx=None, state_idx=None):
        """Whether a layer has states to go on from; without an index, the last layer that keeps states.

        `state_idx`: one of the states of the layer; without it, whether all of them are there.
        """
        if layer_idx is None and self.layers:
            with_states = [index for index, layer in enumerate(self.layers) if hasattr(layer, "update_conv_state")]
            layer_idx = with_states[-1] if with_states else 0
        layer = None if layer_idx is None else self._layer_with("update_conv_state", layer_idx, create=False)
        if layer is None:
            return False
        held = layer.has_previous_state
        return all(held.values()) if state_idx is None else entry(held, state_idx)

    # What the one who runs the model calls

    def crop(self, tokens_to_remove):
        """Roll back the last tokens: `crop(-3)` removes three, `crop(0)` none.

        Removing more than there are empties the cache. ValueError for a positive number; RuntimeError where a layer has
        dropped what would be needed, before any layer has changed.
        """
        count = whole("tokens_to_remove", tokens_to_remove)
        if count > 0:
            raise ValueError(f"crop({count}): give minus the number of tokens to remove, as in crop({-count})")
        if count < 0:
            for layer in self.layers:
                layer.check_crop(count)
        for layer in self.layers:
            layer.crop(count)

    def activate_past_recording(self):
        """From now on keep what a later `crop` could need, in layers that would drop it."""
        for layer in self.layers:
            layer.activate_past_recording()

    def is_recording_past(self, layer_idx):
        """Whether that layer keeps what a later crop could need beyond what it would keep anyway."""
        layer = self._layer(layer_idx)
        return False if layer is None else layer.record_past

    def reset(self):
        """Forget everything and keep the settings. The next sequence may have another batch size."""
        for layer in self.layers:
            layer.reset()

    def reorder_cache(self, beam_idx):
        """Put rows `beam_idx` (batch,) of the batch in that order, in every layer."""
        self.batch_select_indices(beam_idx)

    def batch_select_indices(self, indices):
        """Keep rows `indices` (a list, an index tensor or a mask) of the batch, in that order, in every layer."""
        rows = batch_rows(indices, self.batch_size)
        for layer in self.layers:
            layer.reorder_cache(rows)

    def batch_repeat_interleave(self, repeats):
        """Repeat each row of the batch: a, b -> a, a, b, b for `repeats=2`. What beams need before they part."""
        repeats = whole("repeats", repeats, least=1)
        for layer in self.layers:
            layer.batch_repeat_interleave(repeats)

    def early_initialization(self, batch_size, num_heads, head_dim, dtype, device):
        """Make the buffers before the first forward. `num_heads` and `head_dim`: one number, or one for each layer."""
        batch_size = whole("batch_size", batch_size, least=0)
        heads = one_each("num_heads", num_heads, len(self))
        sizes = one_each("head_dim", head_dim, len(self))
        ready = []
        for layer, layer_heads, size in zip(self.layers, heads, sizes, strict=True):
            if layer.supports_early_init and not layer.is_initialized:
                shape = batch_size, whole("num_heads", layer_heads, least=1), 0, whole("head_dim", size, least=1)
                ready.append((layer, torch.empty(shape, dtype=dtype, device=device)))
        for layer, states in ready:
            layer.lazy_initialization(states, states)

    # Looking inside

    def positions(self, layer_idx=0):
        """Absolute positions of the tokens that a layer holds now."""
        layer = self._layer(layer_idx)
        return [] if layer is None else layer.positions()

    def nbytes(self, device=None, used=False):
        """Bytes really held: every buffer once, spare room included. With `device`, those on that device; with `used`,
        those of the tokens alone. An offloaded cache holds all of its layers on the "cpu", and copies of a few on the
        device beside; "emulated" names what counts against the memory of an `emulated_device`."""
        here = 0 if device == "emulated" else sum(layer.nbytes(device=device, used=used) for layer in self.layers)
        return here + offload.nbytes_on_device(self, device, used)

    @property
    def batch_size(self):
        """Sequences held side by side; -1 while nothing is stored."""
        made = [layer for layer in self.layers if layer.is_initialized and not layer.is_dummy]
        made.sort(key=lambda layer: layer.is_linear)  # attention layers first; a state may be shaped as its model likes
        return made[0].batch_size if made else -1

    @property
    def is_initialized(self):
        """Whether every layer that can be prepared has its buffers."""
        layers = [layer for layer in self.layers if layer.supports_early_init]
        return bool(layers) and all(layer.is_initialized for layer in layers)

    @property
    def is_compileable(self):
        """Whether an attention layer may return slots that are not filled yet, so that its mask must be made each step.

        That is also what a compiled decode step needs, so that no length asks for a graph of its own. (While a
        neighbour records convolution inputs, which grow, more graphs are made; the mask is needed all the same.)
        """
        attention = [layer for layer in self.layers if not (layer.is_linear or layer.is_dummy)]
        if attention:
            return any(layer.is_compileable for layer in attention)
        return bool(self.layers) and all(layer.is_compileable for layer in self.layers)

    @property
    def is_croppable(self):
        """Whether `crop` can undo the last forward in every layer."""
        return all(layer.is_croppable for layer in self.layers)

    @property
    def is_sliding(self):
        """For each layer, whether it keeps a window."""
        return [layer.is_sliding for layer in self.layers]

    @property
    def is_linear(self):
        """For each layer, whether it keeps a recurrent or convolution state and no keys."""
        return [layer.is_linear for layer in self.layers]

    @property
    def is_dummy(self):
        """For each layer, whether it keeps nothing (it reads another layer's keys, or has no attention)."""
        return [layer.is_dummy for layer in self.layers]

    def __len__(self):
        return len(self.layers)

    def __iter__(self):
        """(keys, values, window or None) of each layer: what `DynamicCache(...)` takes as its first argument.

        ValueError where a layer holds states: they would be lost, and the text with them."""
        if any(hasattr(layer, "update_conv_state") and any(layer.has_previous_state.values()) for layer in self.layers):
            raise ValueError("this cache holds convolution or recurrent states, which are no keys and values; copy it")
        for layer in self.layers:
            window = getattr(layer, "sliding_window", None)
            yield layer.keys, layer.values, None if window is None else torch.tensor(window)

    def __repr__(self):
        kinds = [repr(layer) for layer in self.layers]
        layers = ", ".join(f"{kinds.count(kind)} {kind}" for kind in dict.fromkeys(kinds)) or "no layers yet"
        return f"{type(self).__name__}({layers})"

    def _first_with_tokens(self):
        """The first layer that counts tokens; None where there is none."""
        return next((layer for layer in self.layers if not (layer.is_linear or layer.is_dummy)), None)

    def _number(self, layer_idx):
        """A layer's index counted from the front."""
        layer_idx = layer_idx if isinstance(layer_idx, int) else whole("layer_idx", layer_idx)
        return layer_idx + len(self.layers) if layer_idx < 0 else layer_idx

    def _layer(self, layer_idx, create=False):
        """That layer; None where a lazily built cache has not met it yet."""
        layer_idx = layer_idx if isinstance(layer_idx, int) else whole("layer_idx", layer_idx)
        if layer_idx < -len(self.layers):
            raise ValueError(f"layer {layer_idx} does not exist: the cache has {len(self.layers)} layers")
        if create and self.layer_class_to_replicate is not None:
            while len(self.layers) <= layer_idx:
                self.layers.append(self.layer_class_to_replicate())
        if layer_idx < len(self.layers):
            return self.layers[layer_idx]
        if create:
            raise ValueError(f"layer {layer_idx} does not exist: the cache was made for {len(self.layers)} layers")
        return None

    def _layer_with(self, method, layer_idx, create=True):
        """That layer if it has `method`, else a ValueError; None where a lazily built cache has not met it yet."""
        layer = self._layer(layer_idx)
        if layer is None and create:
            raise ValueError(
                f"{method}: the cache has no layer {layer_idx} yet, and only the config says which layers keep states; "
                "make the cache with config=model.config"
            )
        if layer is not None and not hasattr(layer, method):
            kinds = ", ".join(str(index) for index, other in enumerate(self.layers) if hasattr(other, method)) or "none"
            raise ValueError(
                f"{method}: layer {layer_idx} is a {layer!r} and keeps nothing of that kind; layers that do: {kinds}"
            )
        return layer

    def _attention_layer(self, layer_idx):
        """That layer where it counts tokens; for index 0, else the first one that does. None: it is as if empty."""
        layer = self._layer(layer_idx)
        if layer is None or not (layer.is_linear or layer.is_dummy):
            return layer
        first = self._first_with_tokens()
        if layer_idx == 0 and first is not None:
            return first
        if first is None and not any(other.is_initialized for other in self.layers):
            return None
        hint = "no layer of this cache does" if first is None else "ask an attention layer"
        raise ValueError(f"layer {layer_idx} is a {layer!r}, which does not count tokens; {hint}")
