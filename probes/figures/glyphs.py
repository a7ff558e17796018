"""Text that the font at hand can draw: what it lacks is shown by its number."""

from functools import cache

from matplotlib.font_manager import FontProperties, findfont, get_font


def drawable(text: str) -> str:
    r"""The text with every character that has no glyph written as its code point.

    matplotlib would draw an empty box and warn. White space other than the blank is
    spelled too, and line breaks stay.

    >>> drawable("naïve 中"), drawable("a\x07b")
    ('naïve U+4E2D', 'aU+0007b')
    """
    return "".join(c if c in " \n" or _known(c) else _code_point(c) for c in text)


def _known(character: str) -> bool:
    return character.isprintable() and ord(character) in _glyphs()


def _code_point(character: str) -> str:
    return f"U+{ord(character):04X}"


@cache
def _glyphs() -> frozenset[int]:
    """The characters of the font that matplotlib chooses by itself."""
    return frozenset(get_font(findfont(FontProperties())).get_charmap())
