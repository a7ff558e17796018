"""A process whose peak is 24 MB, and nearly twice that if freed blocks stay."""

import sys

import torch

from scripts.bench_timing import peak_growth


def megabytes(count: float) -> torch.Tensor:
    return torch.ones(int(count * 1024**2 / 4))


def one_after_the_other() -> None:
    """glibc takes what is as large as a block that was freed before from its heap."""
    megabytes(24)
    block = megabytes(20)
    behind = megabytes(0.05)
    del block
    megabytes(23)
    del behind


if __name__ == "__main__":
    sys.stdout.write(str(peak_growth(one_after_the_other)))
