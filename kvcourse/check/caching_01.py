"""Task 01d: which models may keep their keys."""

from .small_models_01 import FOUR, PREFIX
from .task import Wrong, choices, task

ANSWERS = ("always", "after the prefix", "never")
TEXT = (3, 1, 4, 1, 5, 9, 2, 6)


def changed_layers(model, tokens):
    """Layers in which an old key changes when one token is put behind `tokens` of them."""
    before, after = model.keys(TEXT[:tokens]), model.keys(TEXT[: tokens + 1])
    gap = (after[:, :tokens] - before).abs().amax(dim=(1, 2))
    return (gap > 1e-5).nonzero().flatten().tolist()


CLAIMS = {  # what an answer says of a text with so many tokens: True, the old keys stay as they are
    "always": lambda tokens: True,
    "after the prefix": lambda tokens: tokens >= PREFIX,
    "never": lambda tokens: False,
}
BECAUSE = {
    ("causal", "never"): "no old token can see the new one, so nothing about it changes",
    ("causal", "after the prefix"): "no old token can see the new one, from the first token on; there is no prefix",
    ("encoder", "always"): "layer 0 proves nothing: there a key depends on its own token alone. Compare all layers",
    (
        "encoder",
        "after the prefix",
    ): "every token looks at every other one, so the new one changes them all",
    (
        "prefix-LM",
        "always",
    ): f"the first {PREFIX} tokens see each other: until all are there, each new one changes the others",
    ("prefix-LM", "never"): f"once the first {PREFIX} tokens are there, it is causal: no old token sees a new one",
    ("window", "never"): "the window moves on, but an old key does not mind who still looks at it. Old keys that "
    "nobody will look at can even be thrown away",
    ("window", "after the prefix"): "no old token can see the new one, from the first token on; a window is no prefix",
}


@task("01d", "your answers against the keys of the four models, before and after one more token")
def task_01d(answers):
    """`answers`: {"causal": a word of ANSWERS, ...} for each model of FOUR."""
    answers = choices(answers, list(FOUR), ANSWERS)
    for name, model in FOUR.items():
        for tokens in range(1, len(TEXT)):
            claim, changed = CLAIMS[answers[name]](tokens), changed_layers(model, tokens)
            if claim != (not changed):
                stays = [str(layer) for layer in range(3) if layer not in changed]
                layers = f"changed in layers {', '.join(map(str, changed))}" if changed else "unchanged in all layers"
                raise Wrong(
                    tested=f"{name}: the keys of {tokens} token{'s' if tokens > 1 else ''}, before and after one more",
                    expected=f"{'unchanged in all layers' if claim else 'changed'}, if {answers[name]!r} were right",
                    came=layers + (f", unchanged in layer {', '.join(stays)}" if changed and stays else ""),
                    likely=BECAUSE[name, answers[name]],
                )
    return {"causal, window": "old keys never change", "encoder": "they change in layers 1 and 2"} | {
        "prefix-LM": f"they stay as soon as the first {PREFIX} tokens are there"
    }
