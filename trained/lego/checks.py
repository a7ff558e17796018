"""What the values of a configuration are checked for. Free of torch."""

from trained.config import require

from .action import action, spelled


def spell(config: object, name: str, prefix: str = "") -> None:
    """Check actions; a run must not depend on a file outside it."""
    texts = tuple(spelled(text) for text in getattr(config, name))
    object.__setattr__(config, name, texts)
    require(len(set(texts)) == len(texts), f"{prefix}{name}={texts}: one twice")
    for text in texts:
        require(len(set(action(text).table)) > 1, f"{text}: moves no value")


def rising(name: str, given: tuple[int, ...]) -> None:
    """Refuse numbers that do not rise, or are not positive."""
    require(list(given) == sorted(set(given)), f"{name}={given}: must be rising")
    require(all(value >= 1 for value in given), f"{name}={given}: at least 1")


def counts(group: str, config: object, names: str) -> None:
    """Refuse fields that are not positive."""
    for name in names.split():
        value = getattr(config, name)
        require(value >= 1, f"{group + '.' if group else ''}{name}={value}: at least 1")
