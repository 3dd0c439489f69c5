"""Numbers in a sentence, as people of many countries write them: 3,840 and 3.840 and 3 840; 12.2 and 12,2."""

import re

GAP = "[ \u00a0\u202f]"
NUMBER = re.compile(
    rf"(?<![\w.,])(?:\d{{1,3}}(?:{GAP}\d{{3}})+(?!\d)(?:[.,]\d+)?|\d+(?:[.,_'\u2019]\d+)*)(?:e[+-]?\d+(?!\w))?"
)


GIGABYTES = re.compile(r"\s*(gb|gigabytes?)\b", re.IGNORECASE)


def readings(sentence):
    """For each number in digits a tuple of what it may mean, the likeliest first; none inside a word such as bf16."""
    return [meanings for meanings, _ in with_units(sentence)]


def with_units(sentence):
    """The same as pairs, each with "gb" where GB is written behind the number, and "" elsewhere."""
    return [
        (meanings, "gb" if GIGABYTES.match(sentence, found.end()) else "")
        for found in NUMBER.finditer(sentence)
        for meanings in _meanings(found.group())
    ]


def numbers_in(sentence):
    """The likeliest meaning of each number."""
    return [meanings[0] for meanings in readings(sentence)]


def _meanings(found):
    """The tuples for one run of digits; more than one where it is a list such as 1,2,3."""
    digits, _, power = re.sub(rf"{GAP}|[_'\u2019]", "", found).partition("e")
    scale = 10.0 ** int(power or 0)
    marks = [mark for mark in digits if mark in ".,"]
    if len(set(marks)) == 2 and marks.count(marks[-1]) == 1:  # 1,024.5 or 1.024,5
        whole, _, part = digits.rpartition(marks[-1])
        return [(float(re.sub("[.,]", "", whole) + "." + part) * scale,)]
    parts = re.split("[.,]", digits)
    grouped = len(parts) > 1 and parts[0].strip("0") and len(parts[0]) <= 3 and {len(part) for part in parts[1:]} == {3}
    meanings = [float("".join(parts)) * scale] if grouped or not marks else []
    if len(parts) == 2:
        decimal = float(".".join(parts)) * scale
        meanings = [decimal, *meanings] if marks[0] == "." else [*meanings, decimal]
    return [tuple(meanings)] if meanings else [(float(part),) for part in parts]
