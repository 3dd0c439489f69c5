"""Predict, then run, then reveal: a guess before each measurement.

    predict("01-a", guess=None, options={20: "...", 25: "...", 100: "...", 290: "..."})
    ...                                  # the Run cell measures
    reveal("01-a", value)

Each option has the belief behind it, one sentence, because a wrong guess follows from a sensible idea.
Guesses live in this module until the kernel stops; nothing is written or sent.
"""

from .logbook import note

_questions: dict[str, dict] = {}  # key -> {option: belief}
_guesses: dict[str, object] = {}  # key -> the option chosen; no entry where there is no guess


def predict(key: str, guess=None, options: dict | None = None) -> None:
    """Ask. With `guess=None` print one fixed line and go on; nothing ever waits for an answer.

    options: three or four, option -> the belief behind it (a sentence). ValueError for any other number.
    A guess that is none of the options is said so and counts as no guess.
    """
    if not isinstance(options, dict) or len(options) not in (3, 4):
        raise ValueError(f"question {key!r}: options are three or four, {{option: belief}}, got {options!r}")
    for option, belief in options.items():
        if not isinstance(belief, str) or not belief.strip():
            raise ValueError(f"question {key!r}: option {_words(option)} needs the belief behind it, a sentence")
    _questions[key] = dict(options)
    _guesses.pop(key, None)
    listed = ", ".join(repr(option) for option in options)  # as they are typed: 2028, not 2,028
    if guess is None:
        print(f"No guess yet. Options: {listed}.\nPut one of them in place of None and run this cell again.")
        return
    chosen = _find(options, guess)
    if chosen is _NONE:
        print(f"{_words(guess)} is none of the options, so it does not count. Choose one of: {listed}.")
        return
    _guesses[key] = chosen
    print(f"Your guess: {_words(chosen)}. It is kept; now run the next cell.")


def reveal(key: str, value) -> None:
    """Print what was measured, what was guessed, and the belief behind the guess."""
    note("questions", key)
    options = _questions.get(key)
    if options is None:
        print(f"Measured: {_words(value)}.")
        print("The question for it stands in a cell above: run that one first and make a guess.")
        return
    right = _find(options, value)
    miss = "" if right is not _NONE else ", which is none of the options"
    print(f"Measured: {_words(value)}{miss}.")
    if key not in _guesses:
        belief = "A wrong guess is worth more than none." if right is _NONE else _belief(options, right)
        print(f"No guess this time. {belief}")
        return
    guess = _guesses[key]
    verdict = "Right." if guess == right else "Not this time, and it follows from a sensible idea."
    print(f"Your guess: {_words(guess)}. {verdict} {_belief(options, guess)}")


_NONE = object()  # no option fits; None itself could be an option


def _belief(options: dict, option) -> str:
    return f"The idea behind {_words(option)}: {options[option].strip()}"


def _find(options: dict, given):
    """The option that equals what was given, or _NONE: 290, 290.0, "290" and a one-element tensor are the same."""
    return next((option for option in options if _normal(option) == _normal(given)), _NONE)


def _plain(value):
    """The Python number inside a one-element tensor or array; anything else as it is."""
    if hasattr(value, "item"):
        try:
            return value.item()
        except (ValueError, RuntimeError):
            return value
    return value


def _normal(value) -> tuple:
    """A form to compare: True is not 1, text ignores case and spaces, "1,024" is the number 1024."""
    value = _plain(value)
    if isinstance(value, bool):
        return ("bool", value)
    if isinstance(value, (int, float)):
        return ("number", value)
    text = " ".join(str(value).split()).casefold()
    try:
        return ("number", float(text.replace(",", "").replace("_", "")))
    except ValueError:
        return ("text", text)


def _words(value) -> str:
    """A number with separators (1,024), a float to four decimals, anything else as text."""
    value = _plain(value)
    if isinstance(value, float):
        value = int(value) if value.is_integer() else round(value, 4)
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return f"{value:,}"
    return str(value)
