"""Task 06d: three chats that went wrong, told by their logs.

Written down from runs of the course's model, greedy and without a mask. In log C the thinking was put into its mouth.
"""

from dataclasses import dataclass

from .task import Unfinished, Wrong, task
from .words import words

CAUSES = ["history fed twice", "last token never fed", "template changed the history"]
CAUSES += ["mask too short", "randomness", "weak model"]


@dataclass(frozen=True)
class Log:
    """A log, and what is behind it."""

    lines: tuple
    cause: str
    line: int
    evidence: str

    def __str__(self):
        return "\n".join(f"{number}  {line}" for number, line in enumerate(self.lines, 1))


def asked(turn, prompt, cache, fed, text):
    return f"turn {turn}: prompt {prompt} tokens, cache {cache}; fed {fed}: {text!r}"


def answered(turn, text, tokens, cache):
    return f"turn {turn}: answer {text!r}; now text {tokens} tokens, cache {cache}"


SYSTEM = "<|im_start|>system\nYou are a ..."
LOGS = {
    "A": Log(
        (
            asked(1, 37, 0, 37, SYSTEM),
            answered(1, "The capital of France is Paris.<|im_end|>", 45, 44),
            asked(2, 59, 44, 59, SYSTEM),
            answered(2, "The capital of France is Paris.<|im_end|>", 67, 110),
            asked(3, 81, 110, 81, SYSTEM),
            answered(3, "The capital of France is Paris.<|im_end|>", 89, 198),
        ),
        "history fed twice",
        3,
        "line 4: a text of 67 tokens, and a cache that has read 110. It should be one token behind the text",
    ),
    "B": Log(
        (
            asked(1, 37, 0, 37, SYSTEM),
            answered(1, "The capital of France is Paris.<|im_end|>", 45, 44),
            asked(2, 59, 44, 14, "\n<|im_start|>user\nAnd of Italy?<|im_end|>\n<|im_start|>assistant\n"),
            answered(2, "The capital of Italy is Rome.<|im_end|>", 67, 65),
            asked(3, 81, 65, 14, "\n<|im_start|>user\nAnd of Japan?<|im_end|>\n<|im_start|>assistant\n"),
            answered(3, "The capital of Japan is Tokyo.\n<|im_end|>", 90, 87),
        ),
        "last token never fed",
        3,
        "line 3: the prompt has 59 tokens and the cache 44, so 15 are new; 14 were fed",
    ),
    "C": Log(
        (
            asked(1, 37, 0, 37, SYSTEM),
            answered(1, "<think>A city in France.</think>The capital of France is Paris.<|im_end|>", 56, 55),
            asked(2, 62, 55, 7, "?<|im_end|>\n<|im_start|>assistant\n"),
            answered(2, "The capital of France is Paris.<|im_end|>", 70, 69),
            asked(3, 84, 69, 15, "<|im_end|>\n<|im_start|>user\nAnd of Japan?<|im_end|>\n<|im_start|>assistant\n"),
            answered(3, "The capital of Japan is Tokyo.?<|im_end|>", 93, 92),
        ),
        "template changed the history",
        3,
        "line 3: the question of turn 2 was longer than a question mark. With it behind a text of 56 tokens the prompt "
        "would have 73; it has 62",
    ),
}
AGAINST = {
    "randomness": "greedy decoding draws nothing by lot: the same input gives the same words each time",
    "weak model": "fed rightly, it answers all three questions well, and no model changes how many tokens are fed",
    "mask too short": "no mask was handed over, and without one every token that is held is seen",
    "history fed twice": "a history fed twice leaves a cache that has read more tokens than the text has",
    "last token never fed": "then one token less is fed than prompt minus cache",
    "template changed the history": "then the prompt would not begin with the text of the turn before",
}


@task("06d", "the causes you named against the logs")
def task_06d(causes):
    """`causes`: {"A": (a word of CAUSES, number of the line where it happens), ...} for each of LOGS."""
    if not isinstance(causes, dict):
        raise Wrong(expected=f'a dict such as {{"A": ("{CAUSES[-1]}", 1), ...}}', came=words(causes))
    causes = {str(letter).strip().upper(): said for letter, said in causes.items()}
    missing = [letter for letter in LOGS if causes.get(letter, ...) is ...]
    if missing:
        raise Unfinished(f"a cause and a line for {', '.join(missing)}; causes: {', '.join(CAUSES)}")
    for letter, log in LOGS.items():
        cause, line = _read(letter, causes[letter])
        if cause != log.cause:
            raise Wrong(
                tested=f"log {letter}, called {cause!r}",
                expected="a cause that explains the numbers",
                came=log.evidence,
                likely=AGAINST[cause],
            )
        if line != log.line:
            there = 0 < line <= len(log.lines)
            where = "there it has happened already" if line > log.line else "there all numbers still fit"
            where = where if there else f"the lines of a log are numbered 1 to {len(log.lines)}"
            raise Wrong(
                tested=f"log {letter}, {cause!r} in line {line}",
                expected="the line in which it happens first",
                came=f"line {line}: {log.lines[line - 1]}" if there else f"there is no line {line}",
                likely=f"the cause is right, the line is not: {where}",
            )
    return {"A": "the history, twice", "B": "one token lost in each turn", "C": "a prompt that is another text"}


def _read(letter, said):
    """(cause, line) as they are written here, in whatever letters they came; Wrong where it is no such pair."""
    if isinstance(said, (tuple, list)) and len(said) == 2 and str(said[1]).strip().removesuffix(".0").isdigit():
        cause = str(said[0]).strip().casefold()
        if cause in CAUSES:
            return cause, int(float(said[1]))
    expected = f'a cause and the number of a line, as in ("{CAUSES[-1]}", 1); causes: {", ".join(CAUSES)}'
    raise Wrong(tested=f"log {letter}", expected=expected, came=words(said))
