"""Which tensors are alive, whoever holds them."""

import gc

import torch


def bytes_alive() -> int:
    """Of all tensors and their gradients, each storage once."""
    gc.collect()
    found = (o for o in gc.get_objects() if issubclass(type(o), torch.Tensor))
    both = (t for o in found for t in (o, o.grad if o.is_leaf else None))
    storages = [t.untyped_storage() for t in both if t is not None]
    return sum({s.data_ptr(): s.nbytes() for s in storages}.values())
