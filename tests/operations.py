"""Which operation works on which kind of cache, ours and transformers': python tests/operations.py

Writes the table in kvcourse/OPERATIONS.md. Each entry is an experiment against the text itself (see `kinds.py`).
"""

import copy
import pickle
import sys
import warnings
from pathlib import Path

import torch
import transformers
from kinds import HEAD_DIM, HEADS, KINDS, ROOM, Story, Wrong, must

import kvcourse as kv

TARGET = Path(__file__).parent.parent / "kvcourse" / "OPERATIONS.md"
MARKS = {"works": "✓", "refused": "–", "wrong": "✗", "crash": "!"}


def prefill_and_steps(story):
    for tokens in (3, 1, 1, 7, 1, 1, 1):
        story.update(tokens)


def crop_early(story):
    story.update(3)
    story.crop(2)


def crop_late(story):
    story.update(12)
    story.crop(2)


def crop_twice(story):
    story.update(4)
    story.crop(1)
    story.crop(2)


def crop_nothing(story):
    story.update(12)
    story.crop(0)


def crop_everything(story):
    story.update(3)
    story.crop(9)


def positive_crop(story):
    story.update(3)
    try:
        story.cache.crop(1)
    except ValueError:
        return
    must(False, "a positive count was accepted")


def record_and_crop(story):
    story.record()
    story.update(6)
    story.update(6)
    story.crop(4)


def croppable(story):
    """`is_croppable` says what a crop then does."""
    for tokens in ((2,), (2, 12)):
        fresh = Story(story.kind, story.library)
        for count in tokens:
            fresh.update(count)
        promised = fresh.cache.is_croppable
        try:
            fresh.crop(1)
            fresh.finish()
            done = True
        except (RuntimeError, ValueError, Wrong):
            done = False
        must(promised == done, "is_croppable promises what a crop does not keep, or denies what it could do")


def reset(story):
    story.update(12)
    story.reset(batch=3)
    story.update(3)


def reorder(story):
    story.update(9)
    story.rows([1, 0])
    story.update(1)
    story.rows([1, 1])


def repeat(story):
    story.update(9)
    story.repeat(3)


def select(story):
    story.update(9)
    story.select([1])


def deep_copy(story):
    story.update(9)
    old, story.cache = story.cache, copy.deepcopy(story.cache)
    old.reset()  # the copy has to stand on its own


def pickled(story):
    story.update(9)
    story.cache = pickle.loads(pickle.dumps(story.cache))


def length_is_a_value(story):
    story.update(3)
    length = story.cache.get_seq_length()
    story.update(2)
    must(int(length) == 3, "a length that was handed out has changed")


def batch_size(story):
    story.update(3)
    must(story.cache.batch_size == 2, "the batch size is not known")


def empty(story):
    story.cache.get_mask_sizes(3, 0), story.cache.get_seq_length(), story.cache.get_max_length()
    story.cache.crop(-3), story.cache.crop(0), story.cache.reset()


def overflow(story):
    """More than a static cache holds: refused, and the length stays. Others hold it."""
    story.update(3)
    if story.fits(ROOM):
        return story.update(ROOM)
    states = torch.zeros(2, HEADS, ROOM, HEAD_DIM)
    try:
        for layer_idx, layer_type in enumerate(story.kind.layer_types):
            if layer_type != "linear_attention":
                story.cache.update(states, states, layer_idx)
    except (ValueError, IndexError):
        return
    must(False, "too many tokens were accepted")


def inference_mode(story):
    with torch.inference_mode():
        story.update(6)
    with torch.no_grad():
        story.update(1)
        story.rows([1, 0])


OPERATIONS = {
    "prefill, chunks, single tokens": prefill_and_steps,
    "`crop` before the window has filled": crop_early,
    "`crop` after": crop_late,
    "`crop` twice": crop_twice,
    "`crop(0)`": crop_nothing,
    "`crop` of more than there is": crop_everything,
    "a positive `crop` is refused": positive_crop,
    "record, then `crop`": record_and_crop,
    "`is_croppable` is true to its word": croppable,
    "`reset`, then another batch": reset,
    "`reorder_cache`": reorder,
    "`batch_repeat_interleave`": repeat,
    "`batch_select_indices`": select,
    "deep copy": deep_copy,
    "pickle": pickled,
    "a length is a value": length_is_a_value,
    "`batch_size`": batch_size,
    "an empty cache answers": empty,
    "more than fits": overflow,
    "filled in inference mode, continued outside": inference_mode,
}


def outcome(operation, kind, library):
    """works, refused (a clear error, nothing changed), wrong (an answer, and not the right one) or crash."""
    try:
        story = Story(kind, library)
    except Exception:
        return "crash"
    try:
        operation(story)
        story.finish()
    except Wrong:
        return "wrong"
    except (ValueError, RuntimeError):
        try:  # what a refusal leaves behind has to be what was there
            story.finish()
        except Exception:
            return "wrong"
        return "refused"
    except Exception:
        return "crash"
    return "works"


def table(library):
    warnings.simplefilter("ignore")
    names = list(KINDS)
    rows = {
        title: [outcome(operation, KINDS[name], library) for name in names] for title, operation in OPERATIONS.items()
    }
    lines = ["| operation | " + " | ".join(name.replace(", ", "<br>") for name in names) + " |"]
    lines.append("|---|" + ":-:|" * len(names))
    lines += [f"| {title} | " + " | ".join(MARKS[each] for each in row) + " |" for title, row in rows.items()]
    every = [each for row in rows.values() for each in row]
    return "\n".join(lines), {each: every.count(each) for each in MARKS}


def document():
    torch.set_num_threads(1)
    parts = [
        "# What works on which cache",
        "Made by `python tests/operations.py`. Every entry is an experiment on the CPU, checked against the text that "
        "went in: random keys and values, two layers, a window of 5 tokens, room for 24 in static caches.",
        "✓ works · – refused with a clear error, nothing changed · ✗ an answer, and a wrong one · ! another error",
    ]
    for title, library in (("kvcourse", kv), (f"transformers {transformers.__version__}", transformers)):
        rows, counts = table(library)
        counted = ", ".join(f"{count} {name}" for name, count in counts.items())
        parts += [f"## {title}", f"{sum(counts.values())} experiments: {counted}.", rows]
    return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    TARGET.write_text(document(), encoding="utf-8")
    print(TARGET.read_text(encoding="utf-8") if "--print" in sys.argv else f"wrote {TARGET.name}")
