"""The cache of an encoder-decoder model: one for the text it writes, one for the source it reads."""

from .cache import Cache
from .containers import DynamicCache
from .hf import EncoderDecoderCacheBase
from .layers.checks import batch_rows
from .layers.source import show_whole_source


class EncoderDecoderCache(Cache, EncoderDecoderCacheBase):
    """Two caches: self-attention over the text written so far, cross-attention over the source.

    Keeps: what its two caches keep. The self side grows with each token. The cross side is computed once for each
    source; `is_updated[layer_idx]` says that it was, and a crop leaves it alone. Lengths, masks, positions and kinds of
    layers are those of the self side; bytes and batch operations concern both.
    Bytes: the sum of both. In transformers: `EncoderDecoderCache`.

    The two caches may differ in kind. Or one argument alone, as data-parallel training gives it: for each layer
    (self keys, self values, cross keys, cross values), or six entries with a window after each pair.
    """

    def __init__(self, self_attention_cache, cross_attention_cache=None):
        if cross_attention_cache is None:
            self_attention_cache, cross_attention_cache = _from_tensors(self_attention_cache)
        _check_parts(self_attention_cache, cross_attention_cache)
        self.self_attention_cache = self_attention_cache
        self.cross_attention_cache = cross_attention_cache
        cross = enumerate(cross_attention_cache.layers)
        self.is_updated = {index: not layer.is_dummy and layer.get_seq_length() > 0 for index, layer in cross}

    @property
    def cross_attention_cache(self):
        """The cache of the source. Set to another one, it is prepared to show the whole source and nothing else."""
        return self._cross

    @cross_attention_cache.setter
    def cross_attention_cache(self, cache):
        show_whole_source(cache)
        self._cross = cache

    @property
    def layers(self):
        """Layers of the self side. Every question about layers is answered from these."""
        return self.self_attention_cache.layers

    # The self side

    def update(self, key_states, value_states, layer_idx, *args, **kwargs):
        """Add tokens to the self side. For the source a model calls `cross_attention_cache.update`."""
        return self.self_attention_cache.update(key_states, value_states, layer_idx, *args, **kwargs)

    def crop(self, tokens_to_remove):
        """Roll back the last tokens of the self side; the source stays as it was read."""
        self.self_attention_cache.crop(tokens_to_remove)

    def activate_past_recording(self):
        """From now on keep, on the self side, what a later `crop` could need."""
        self.self_attention_cache.activate_past_recording()

    # Both sides

    def reset(self):
        """Forget text and source; the next forward reads a new source."""
        self.self_attention_cache.reset()
        self.cross_attention_cache.reset()
        self.is_updated = dict.fromkeys(self.is_updated, False)

    def reorder_cache(self, beam_idx):
        """Put rows `beam_idx` (batch,) of the batch in that order, on both sides."""
        self.batch_select_indices(beam_idx)

    def batch_select_indices(self, indices):
        """Keep rows `indices` (a list, an index tensor or a mask) of the batch, in that order, on both sides."""
        for part in self._parts():  # raises before either side has changed
            batch_rows(indices, part.batch_size)
        for part in self._parts():
            part.batch_select_indices(indices)

    def batch_repeat_interleave(self, repeats):
        """Repeat each row of the batch, on both sides."""
        for part in self._parts():
            part.batch_repeat_interleave(repeats)

    def early_initialization(self, batch_size, num_heads, head_dim, dtype, device):
        """Make the buffers of both sides before the first forward, for models whose sides have the same heads."""
        for part in self._parts():
            part.early_initialization(batch_size, num_heads, head_dim, dtype, device)

    def nbytes(self, device=None, used=False):
        """Bytes really held by both sides."""
        return sum(part.nbytes(device=device, used=used) for part in self._parts())

    @property
    def batch_size(self):
        """Sequences held side by side; -1 while nothing is stored."""
        return max(part.batch_size for part in self._parts())

    def prefetch(self, layer_idx, only_non_sliding=True):
        """Bring the next offloaded layer to the device, on each side that is offloaded."""
        for part in self._offloaded():
            part.prefetch(layer_idx, only_non_sliding)

    def offload(self, layer_idx, only_non_sliding=True):
        """Take a layer off the device, on each side that is offloaded."""
        for part in self._offloaded():
            part.offload(layer_idx, only_non_sliding)

    @property
    def offloading(self):
        """Whether layers of a side live on the host."""
        return any(part.offloading for part in self._parts())

    def check_dynamic_cache(self, method):
        """TypeError if a side lacks `method`. Those of this package have all methods, whatever their kind."""
        for part in self._parts():
            if not callable(getattr(part, method, None)):
                raise TypeError(f"{method!r} is not defined for a {type(part).__name__}, one side of {self!r}")

    def __iter__(self):
        """(keys, values, window) of the self side and of the cross side, six entries a layer."""
        for own, cross in zip(self.self_attention_cache, self.cross_attention_cache, strict=False):
            yield own + cross

    def __repr__(self):
        own, cross = self._parts()
        return f"{type(self).__name__}(self_attention_cache={own!r}, cross_attention_cache={cross!r})"

    def _offloaded(self):
        return [part for part in self._parts() if part.offloading] or self._parts()[:1]  # which says that it is not

    def _parts(self):
        return self.self_attention_cache, self.cross_attention_cache


def _check_parts(*parts):
    for part in parts:
        if not isinstance(part, Cache) or isinstance(part, EncoderDecoderCache):
            names = " and ".join(type(part).__name__ for part in parts)
            raise TypeError(
                f"an EncoderDecoderCache is made of two caches of this package, one for self-attention and one for "
                f"cross-attention; got {names}"
            )
    if parts[0] is parts[1]:
        raise ValueError(
            f"self-attention and cross-attention need a cache each; got the same {type(parts[0]).__name__} for both, "
            "in which text and source would be mixed"
        )


def _from_tensors(data):
    """Two dynamic caches from (keys, values[, window]) of both sides, layer by layer."""
    if isinstance(data, Cache):
        raise TypeError(
            f"two caches are needed, for self-attention and for cross-attention; got one {type(data).__name__}"
        )
    entries = [tuple(entry) for entry in data]
    for index, entry in enumerate(entries):
        if len(entry) not in (4, 6):
            raise ValueError(f"layer {index}: give 4 entries, or 6 with windows, for its two sides; got {len(entry)}")
    halves = [(entry[: len(entry) // 2], entry[len(entry) // 2 :]) for entry in entries]
    return DynamicCache([own for own, _ in halves]), DynamicCache([cross for _, cross in halves])
