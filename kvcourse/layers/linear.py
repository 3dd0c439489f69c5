"""Linear attention and state-space layers: a state instead of keys."""

from collections.abc import MutableMapping

from .base import Layer
from .checks import entry
from .states import ConvState, RecurrentState


class LinearLayer(Layer):
    """Convolution and recurrent states, of constant size whatever the length of the text.

    Keeps: for each state index the last `conv_kernel_size` inputs of a short convolution, and one recurrent state.
    Drops: every token, once it is folded into the recurrent state. No crop can undo that. Short convolutions alone
    can be rolled back, as far as past recording reaches.
    Bytes: for each state index, batch x channels x kernel_size x itemsize (while recording, capacity in place of
    kernel_size), and numel(recurrent state) x itemsize.
    In transformers: `LinearAttentionLayer`.

    `number_of_states`: pairs of states in one layer. `keep_buffers`: a reset keeps the memory and its address, as a
    static cache does for compiled steps.
    """

    is_linear = True
    supports_early_init = False
    keys = values = None  # it keeps none

    def __init__(self, number_of_states=1, keep_buffers=False):
        self.number_of_states = number_of_states
        self._conv = [ConvState(keep=keep_buffers) for _ in range(number_of_states)]
        self._recurrent = [RecurrentState(keep_buffers) for _ in range(number_of_states)]
        self._record_past = False

    def storages(self):
        return [*self._conv, *self._recurrent]

    # What a model calls

    def update_conv_state(self, conv_states, state_idx=0, conv_kernel_size=None, **kwargs):
        """Add inputs (batch, channels, q_len) and return those that the convolution looks at, the new ones last.

        `conv_kernel_size`: inputs to keep; without it, as many as the first call brings. Returns
        (batch, channels, past + q_len); a first call shorter than the kernel is padded with zeros at its left.
        """
        state = entry(self._conv, state_idx)
        if state.is_allocated and conv_states.shape[:-1] != state.buffer.shape[:-1]:
            raise ValueError(_mismatch("convolution inputs", conv_states, state.buffer))
        return state.feed(conv_states, conv_kernel_size, self._record_past)

    def update_recurrent_state(self, recurrent_states, state_idx=0, **kwargs):
        """Replace the recurrent state (batch, ...) and return it. It keeps the number format of the first one."""
        state = entry(self._recurrent, state_idx)
        if state.is_allocated and recurrent_states.shape != state.buffer.shape:
            raise ValueError(_mismatch("recurrent state", recurrent_states, state.buffer))
        return state.write(recurrent_states)

    def update(self, key_states, value_states, *args, **kwargs):
        """This layer has no keys: always a ValueError."""
        self.check_update(key_states, value_states)

    # Questions

    @property
    def conv_states(self):
        """Convolution inputs held, by state index: (batch, channels, kernel_size), or None. Entries can be set."""
        return _States(self._conv)

    @property
    def recurrent_states(self):
        """Recurrent states held, by state index: (batch, ...), or None. Entries can be set."""
        return _States(self._recurrent)

    @property
    def is_conv_states_initialized(self):
        """For each state index, whether convolution inputs are held."""
        return {index: state.is_allocated for index, state in enumerate(self._conv)}

    @property
    def is_recurrent_states_initialized(self):
        """For each state index, whether a recurrent state is held."""
        return {index: state.is_allocated for index, state in enumerate(self._recurrent)}

    @property
    def has_previous_state(self):
        """For each state index, whether a forward has left something to continue from."""
        pairs = zip(self._conv, self._recurrent, strict=True)
        return {index: any(state.is_allocated for state in pair) for index, pair in enumerate(pairs)}

    @property
    def device(self):
        """Where the states lie; None while there are none."""
        return next((state.buffer.device for state in self.storages() if state.is_allocated), None)

    @property
    def is_compileable(self):
        """States have a constant shape; a record of the past grows."""
        return not self._record_past

    @property
    def is_croppable(self):
        """Not once there is a recurrent state; convolution inputs alone, while recording. Unused: nothing to undo."""
        if any(state.is_allocated for state in self._recurrent):
            return False
        return self._record_past or not self.is_initialized

    def positions(self):
        """Absolute positions held: none. A state holds a text, not its tokens."""
        return []

    # Rolling back

    @property
    def record_past(self):
        """Whether convolution inputs are kept until the next crop. Setting it to False gives them up."""
        return self._record_past

    @record_past.setter
    def record_past(self, on):
        if self._record_past and not on:
            for state in self._conv:
                state.end_record()
        self._record_past = bool(on)

    def activate_past_recording(self):
        """Keep convolution inputs from now on, so that a crop can take them back."""
        self.record_past = True

    def check_crop(self, tokens_to_remove):
        if tokens_to_remove == 0 or not self.is_initialized:
            return
        if any(state.is_allocated for state in self._recurrent):
            raise RuntimeError(
                f"crop({tokens_to_remove}): a recurrent state can't be rolled back, since every token is folded into "
                "it for good; copy the cache before the tokens that may have to go (copy.deepcopy), or call reset()"
            )
        if not self._record_past:
            raise RuntimeError(
                f"crop({tokens_to_remove}): the layer keeps only what its convolution still needs; call "
                "activate_past_recording() before the forward that may have to be rolled back"
            )
        for state in self._conv:
            if state.is_allocated and not state.can_remove(-tokens_to_remove):
                raise RuntimeError(
                    f"crop({tokens_to_remove}): only {state.recorded} tokens were recorded since the last crop or "
                    "since recording began; remove no more than these, or call reset()"
                )

    def crop(self, tokens_to_remove):
        """Take back the last `-tokens_to_remove` inputs of each convolution, and free what the next step won't read."""
        self.check_crop(tokens_to_remove)
        for state in self._conv:
            if self._record_past and state.is_allocated:
                state.remove(-tokens_to_remove)

    def check_update(self, key_states, value_states):
        raise ValueError(
            "this layer keeps convolution and recurrent states and takes no keys and values; "
            "call update_conv_state or update_recurrent_state"
        )


class _States(MutableMapping):
    """The states of a layer by index, as models read and set them. Setting None forgets a state."""

    def __init__(self, storages):
        self._storages = storages

    def __getitem__(self, state_idx):
        return self._storage(state_idx).view()

    def __setitem__(self, state_idx, tensor):
        self._storage(state_idx).clear() if tensor is None else self._storage(state_idx).set(tensor)

    def __delitem__(self, state_idx):
        self._storage(state_idx).clear()

    def __iter__(self):
        return iter(range(len(self._storages)))

    def __len__(self):
        return len(self._storages)

    def __repr__(self):
        return repr(dict(self))

    def _storage(self, state_idx):
        if state_idx not in range(len(self)):  # a list would count -1 from its end
            raise KeyError(state_idx)
        return self._storages[state_idx]


def _mismatch(name, new, held):
    hint = "reset() starts a new text"
    if held.shape[0] and new.shape[0] > held.shape[0] and new.shape[0] % held.shape[0] == 0:
        hint = (
            f"beams and several returned sequences need batch_repeat_interleave({new.shape[0] // held.shape[0]}) first"
        )
    return f"the new {name} have the shape {tuple(new.shape)} and those held {tuple(held.shape)}; {hint}"
