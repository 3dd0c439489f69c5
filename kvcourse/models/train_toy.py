"""Train a toy model again: python -m kvcourse.models.train_toy t5 (or mamba), one to three minutes of one core.

Writes weights in bfloat16, config, tokenizer and a card with the accuracy on questions that training never showed, into
`work/toy-t5` or the folder of `--to`; `kvcourse.load("./work/toy-t5")` loads it. With --measure nothing is trained or
written: the accuracy of the model in that folder, or of the shipped one.
"""

import argparse
import math
import random
import time
from pathlib import Path

import torch
from transformers import GenerationConfig
from transformers.utils import logging

from .pretrained import pretrained
from .toys import TOYS, accuracy, examples, folder, no_advice

BATCH, WARM_UP, PEAK = 64, 100, 3e-3
MEASURED = 2000  # held-out questions drawn for each length; the different ones among them are asked
ABOUT = {
    "toy-t5": "Reads a number from 0 to 99,999 and writes it in English words: `70142` gives `seventy thousand one "
    "hundred forty-two`. A token is a character. Made for the lessons of kvcourse; it can do nothing else.",
    "toy-mamba": "Copies lower-case letters: `hsreltpu>` gives `hsreltpu.`. A token is a character. More than 8 "
    "letters come out wrong: its state has a constant size, and it saw nothing longer in training. Made for lessons "
    "of kvcourse; it can do nothing else.",
}
DATA = {
    "toy-t5": "a count of digits from 1 to 5, each as likely, then a number of that many digits",
    "toy-mamba": "a length from 3 to 8, each as likely, then that many random letters",
}


def train(name, steps=None, seed=0, progress=None):
    """Return (model, losses) after `steps` of the training of `name`; None for all of it.

    The same seed gives the same numbers on the same machine, and the caller's random state is left alone.
    progress: called with a line of text every hundred steps.
    """
    toy, rng, losses = TOYS[name], random.Random(seed), []
    tokenizer = toy.new_tokenizer()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = toy.new_model().train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=PEAK, betas=(0.9, 0.98), weight_decay=0.01)
    for step in range(steps or toy.steps):
        optimizer.param_groups[0]["lr"] = learning_rate(step, toy.steps)
        pairs = examples(name, BATCH, seed=rng.random(), unseen=False)
        loss = model(**inputs(tokenizer, pairs, model.config.is_encoder_decoder), use_cache=False).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
        if progress and step % 100 == 99:
            progress(f"step {step + 1} of {toy.steps}: loss {sum(losses[-100:]) / 100:.4f}")
    return model.eval(), losses


def learning_rate(step, steps):
    """Up in a line during the warm-up, then down to zero along half a cosine."""
    return PEAK * min((step + 1) / WARM_UP, 0.5 + 0.5 * math.cos(math.pi * step / steps))


def inputs(tokenizer, pairs, reads_first):
    """What forward takes to learn (question, answer) `pairs`. Labels of -100 are not counted in the loss.

    reads_first: the model has an encoder for the question. Otherwise question and answer are one text.
    """
    questions, written = zip(*pairs, strict=True)
    if reads_first:
        batch = tokenizer(list(questions), return_tensors="pt", padding=True)
        labels = tokenizer(list(written), return_tensors="pt", padding=True).input_ids
        return {**batch, "labels": labels.masked_fill(labels == tokenizer.pad_token_id, -100)}
    texts = [question + answer + tokenizer.eos_token for question, answer in pairs]
    batch = tokenizer(texts, return_tensors="pt", padding=True)
    mark = batch.input_ids == tokenizer.convert_tokens_to_ids(">")
    answer = mark.cumsum(dim=1).bool() & ~mark
    return {**batch, "labels": batch.input_ids.masked_fill(~answer, -100)}


def measure(name, model, tokenizer):
    """{length: (accuracy, questions)} on held-out questions; the first row mixes the lengths of training."""
    found = {}
    for length in (None, *TOYS[name].measured):
        # of short questions there are fewer
        pairs = list(dict.fromkeys(examples(name, MEASURED, length, seed=1)))
        lengths = sorted({len(question.rstrip(">")) for question, _ in pairs})
        found[length or f"{lengths[0]} to {lengths[-1]}"] = accuracy(model, tokenizer, pairs), len(pairs)
    return found


def save(model, tokenizer, where):
    """Write weights in bfloat16, config and tokenizer to the folder `where`, readable by everyone."""
    model.to(torch.bfloat16)
    model.config.architectures = [type(model).__name__]
    start = getattr(model.config, "decoder_start_token_id", None)
    marks = {"pad_token_id": model.config.pad_token_id, "eos_token_id": model.config.eos_token_id}
    model.generation_config = GenerationConfig(max_new_tokens=64, decoder_start_token_id=start, **marks)
    model.save_pretrained(where)
    tokenizer.save_pretrained(where)
    for path in where.iterdir():
        path.chmod(0o644)


def card(name, model, found, seconds):
    """The text of README.md: what the model does, what it learned from, how well, and how to make it again."""
    weights = sum(weight.numel() for weight in model.parameters())
    rows = "\n".join(f"| {length} | {count:,} | {share:.2%} |" for length, (share, count) in found.items())
    return (
        f"# {name}\n\n{ABOUT[name]}\n\n"
        f"{type(model).__name__} with {weights:,} weights, stored in bfloat16. {TOYS[name].steps:,} steps of {BATCH} "
        f"examples took {seconds:.0f} seconds of one CPU core; the seed is fixed.\n\n"
        f"The data are made while training: {DATA[name]}. One question in ten of those with three characters or more "
        "is never shown, chosen by a checksum (`held_out` in `kvcourse/models/toys.py`). On these:\n\n"
        f"| length | held-out questions | answered without a mistake |\n|---|---|---|\n{rows}\n\n"
        f"Measure again: `python -m kvcourse.models.train_toy {name[4:]} --measure`\n\n"
        f"Train again: `python -m kvcourse.models.train_toy {name[4:]}`, which writes to `work/{name}`; another "
        "processor rounds differently, so weights and percentages may differ a little.\n"
    )


def main(arguments=None):
    parser = argparse.ArgumentParser("python -m kvcourse.models.train_toy", description="Train a toy model again.")
    parser.add_argument("toy", choices=[name.removeprefix("toy-") for name in TOYS])
    parser.add_argument("--to", type=Path, help="the folder to write to (default: work/toy-t5 or work/toy-mamba)")
    parser.add_argument("--measure", action="store_true", help="only measure; without --to the shipped model")
    options = parser.parse_args(arguments)
    name = f"toy-{options.toy}"
    where = options.to or (folder(name) if options.measure else Path("work") / name)
    torch.set_num_threads(1)
    no_advice()
    logging.disable_progress_bar()
    start = time.process_time()
    if not options.measure:
        save(train(name, progress=print)[0], TOYS[name].new_tokenizer(), where)
    seconds = time.process_time() - start
    model, tokenizer = pretrained(where, (None, None), {"dtype": torch.float32, "local_files_only": True})
    found = measure(name, model.eval(), tokenizer)
    for length, (share, count) in found.items():
        print(f"length {length}: {share:.2%} of {count:,} held-out questions")
    if not options.measure:
        (where / "README.md").write_text(card(name, model, found, seconds), encoding="utf-8")
        print(f"{seconds:.0f} CPU seconds; written to {where}")


if __name__ == "__main__":
    main()
