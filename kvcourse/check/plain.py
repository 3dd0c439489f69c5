"""An answer as a plain number, whatever kind of number it is."""

from .words import Phrase, words


def number(said):
    """A number of any kind (a Fraction, a tensor of one element) as an int or a float; anything else in words."""
    if said is None or isinstance(said, (bool, str)):
        return said
    try:
        plain = float(said)
    except (TypeError, ValueError, RuntimeError):
        return Phrase(f"{words(said)}, and not a number")
    return int(plain) if plain.is_integer() else plain
