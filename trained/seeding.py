"""Randomness that depends on names, not on history.

Every draw takes a generator made from (seed, path), for example
`generator(3, "full", "batch", 120)`. A resumed run therefore draws what the unbroken
run would have drawn, and a seed gets the same numbers alone or among others.
"""

import hashlib

import torch


def generator(
    seed: int, *path: str | int, device: torch.device | str = "cpu"
) -> torch.Generator:
    """A generator whose state is a hash of the seed and the path of names."""
    text = "/".join(str(part) for part in (seed, *path))
    digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
    state = int.from_bytes(digest, "little") >> 1
    return torch.Generator(device).manual_seed(state)
