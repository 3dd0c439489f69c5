"""The oracle for random operations on a cache layer: the whole text, kept in one tensor that nobody ever trims."""

import copy
import pickle
from dataclasses import dataclass, field

import pytest
import torch
from hypothesis import strategies as st

from kvcourse.cache import Cache

HEADS, HEAD_DIM = 2, 3


def states(batch, tokens, first=0, dtype=torch.float32):
    """Keys and values of `tokens` new tokens, no two numbers alike."""
    count = batch * HEADS * tokens * HEAD_DIM
    keys = torch.arange(first, first + count, dtype=dtype).view(batch, tokens, HEADS, HEAD_DIM).transpose(1, 2)
    return keys, -keys - 0.5


@dataclass
class PlainList:
    """What a layer has to do, said with the whole text at hand. Subclasses say what the kind keeps and refuses."""

    text: torch.Tensor = field(default_factory=lambda: states(1, 0)[0])  # keys of all tokens seen
    first: int = 0  # position of the oldest token held
    recording: bool = False
    used: bool = False  # whether the layer has its tensors

    @property
    def length(self):
        return self.text.shape[-2]

    @property
    def batch(self):
        return self.text.shape[0]

    def mask_sizes(self, count):
        raise NotImplementedError

    def may_crop(self, count):
        return True

    def has_room(self, count):
        return True

    def trim(self):
        """Set `first` after an update or a crop."""


class Life:
    """A cache of one layer and its plain list, living through the same operations."""

    def __init__(self, layer, plain):
        self.cache, self.plain, self.numbers = Cache(layers=[layer]), plain, 1

    @property
    def layer(self):
        return self.cache.layers[0]

    def step(self, data):
        """One random operation, then every question."""
        names = "update update update crop crop record forget reorder repeat select reset deepcopy pickle misfit"
        getattr(self, data.draw(st.sampled_from(names.split())))(data)
        self.check()

    def update(self, data):
        plain, longest = self.plain, 2 * self.window + 1
        batch = data.draw(st.integers(1, 3)) if plain.length == 0 and not plain.used else plain.batch
        count = data.draw(st.integers(1, longest))
        keys, values = states(batch, count, self.numbers)
        self.numbers += keys.numel()
        if not plain.has_room(count):
            with pytest.raises(ValueError, match=rf"{plain.length + count} .* {self.layer.max_cache_len}"):
                self.cache.update(keys, values, 0)
            return
        length, offset = plain.mask_sizes(count)
        assert self.cache.get_mask_sizes(count, 0) == (length, offset)
        got_keys, got_values = self.cache.update(keys, values, 0)
        plain.text = torch.cat([plain.text if plain.length else keys[:, :, :0], keys], dim=-2)
        plain.used = True
        plain.trim()
        assert got_keys.shape[-2] == got_values.shape[-2] == length
        wanted = plain.text[:, :, offset : offset + length]
        assert torch.equal(got_keys[:, :, : wanted.shape[-2]], wanted)
        assert torch.equal(got_values[:, :, : wanted.shape[-2]], -wanted - 0.5)
        assert not got_keys.is_inference()

    @property
    def window(self):
        return getattr(self.layer, "sliding_window", self.layer.get_max_length())

    def crop(self, data):
        plain = self.plain
        count = data.draw(st.integers(-1, plain.length + 2) | st.integers(0, 2))
        if count < 0:
            with pytest.raises(ValueError, match=r"crop\(1\)"):
                self.cache.crop(1)
        elif count and not plain.may_crop(count):
            with pytest.raises(RuntimeError, match=f"cannot remove {count} of {plain.length} tokens"):
                self.cache.crop(-count)
        else:
            self.cache.crop(-count)
            plain.text = plain.text[:, :, : max(plain.length - count, 0)]
            plain.trim_to_window()

    def record(self, data):
        self.cache.activate_past_recording()
        self.plain.record(True)

    def forget(self, data):
        if self.layer.record_past:
            self.layer.record_past = False
        self.plain.record(False)

    def reorder(self, data):
        self._rows(data.draw(st.lists(st.integers(0, self.plain.batch - 1), min_size=1, max_size=4)))

    def select(self, data):
        mask = data.draw(st.lists(st.booleans(), min_size=self.plain.batch, max_size=self.plain.batch).filter(any))
        self._rows(torch.tensor(mask))

    def repeat(self, data):
        if self.plain.batch <= 2:
            self.cache.batch_repeat_interleave(2)
            self.plain.text = self.plain.text.repeat_interleave(2, dim=0)

    def _rows(self, rows):
        if self.plain.used:
            self.cache.batch_select_indices(rows)
            self.plain.text = self.plain.text[rows]

    def reset(self, data):
        self.cache.reset()
        self.plain.text, self.plain.first, self.plain.used = states(1, 0)[0], 0, False

    def deepcopy(self, data):
        old, self.cache = self.cache, copy.deepcopy(self.cache)
        assert self.cache.nbytes() <= old.nbytes(used=True)
        old.reset()

    def pickle(self, data):
        old, self.cache = self.cache, pickle.loads(pickle.dumps(self.cache))
        assert self.cache.nbytes() <= old.nbytes(used=True)

    def misfit(self, data):
        """States of another batch, or of another head size, are refused."""
        if self.plain.length:
            keys, values = states(self.plain.batch + 1, 1)
            with pytest.raises(ValueError, match="batch"):
                self.cache.update(keys, values, 0)
            keys, values = states(self.plain.batch, 1)
            with pytest.raises(ValueError, match="heads"):
                self.cache.update(keys[..., :1], values[..., :1], 0)

    def check(self):
        """Every question, after every operation."""
        plain, cache = self.plain, self.cache
        assert type(cache.get_seq_length()) is int and cache.get_seq_length() == plain.length
        assert cache.positions(0) == list(range(plain.first, plain.length))
        assert cache.is_croppable == (plain.recording or plain.may_crop(1))
        assert cache.is_recording_past(0) == plain.recording
        for count in (1, 2, self.window, 2 * self.window):
            assert cache.get_mask_sizes(count, 0) == plain.mask_sizes(count)
        if plain.used:
            held = plain.text[:, :, plain.first :]
            tokens = held.shape[-2]
            assert cache.batch_size == plain.batch
            assert cache.nbytes(used=True) == 2 * held.nbytes
            twin = copy.deepcopy(cache)  # so that looking at the keys does not unpack a packed copy
            assert torch.equal(twin.layers[0].keys[:, :, :tokens], held)
            assert torch.equal(twin.layers[0].values[:, :, :tokens], -held - 0.5)
