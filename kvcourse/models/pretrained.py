"""Load a folder or a hub id with transformers, with or without windows, and without a word on stderr."""

from contextlib import contextmanager

from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForSeq2SeqLM, AutoTokenizer, MinistralForCausalLM
from transformers.utils import logging

from .store import ModelError
from .variants import windowed_config


def pretrained(name, window, options):
    """Return (model, tokenizer) from `name`, a folder (Path) or a hub id (str); encoder-decoder models too.

    window: (layer_types, sliding_window), (None, None) for the model as it is.
    options: for `from_pretrained` of the model; those that say where to look go to all three calls.
    """
    where = {k: options[k] for k in ("local_files_only", "revision", "token", "cache_dir") if k in options}
    with _no_progress_bars():
        try:
            config = AutoConfig.from_pretrained(name, **where)
        except (OSError, ValueError) as error:
            raise ModelError(
                f"No model could be loaded from {str(name)!r}: it is not there, holds no model that transformers "
                "knows, or the hub can't be reached; the model of the course needs no network: kvcourse.load()"
            ) from error
        kind = AutoModelForSeq2SeqLM if config.is_encoder_decoder else AutoModelForCausalLM
        if window != (None, None):
            kind, config = MinistralForCausalLM, windowed_config(config, *window)
        return kind.from_pretrained(name, config=config, **options), AutoTokenizer.from_pretrained(name, **where)


@contextmanager
def _no_progress_bars():
    """A notebook must not fill with bars; the reader's own setting comes back afterwards."""
    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()
