"""The one exception for what a user can mend: the command prints it, exits with 2."""


class BadInput(ValueError):
    """A wrong name, value, size or file; the message is one line, with the remedy."""


class NothingChanged(BadInput):
    """An edit that left everything as it was: an ablation of nothing."""


def unknown(what: str, given: object, valid: object) -> BadInput:
    """The error for a name that is not among the valid ones.

    Args:
        what: the kind of thing, as in "study" or "config key".
        given: the offending value.
        valid: an iterable of the valid ones, or a phrase that describes them.
    """
    if isinstance(valid, str):
        choices = valid
    else:
        assert hasattr(valid, "__iter__")
        choices = ", ".join(str(item) for item in valid)
    return BadInput(f"unknown {what} '{given}'; choose from: {choices}")
