"""Text from elsewhere, on a terminal or in a table."""


def printable(text: str) -> str:
    r"""Text of which a reader sees every character, and none moves the cursor.

    >>> printable("a\nb"), printable("\x1b[2J")
    ('a\\nb', '\\x1b[2J')
    """
    return "".join(c if c.isprintable() else _escaped(c) for c in text)


def _escaped(character: str) -> str:
    """A character by its number, as Python writes it."""
    return character.encode("unicode_escape").decode("ascii")
