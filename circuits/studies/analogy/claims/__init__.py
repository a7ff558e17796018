"""What the analogy paper says, as claims with expectations fixed in advance.

The paper does not say which data its "attribution, then similarity" rows used, so both
readings are trained: AS_T (Theorem 3) stands for the one-layer block, which replicates
the theory, and AS_E (Section 5) for GPT-2 and the ReLU block; the other reading is
shown among our own claims and never swapped in. Free of torch.

How free the settings were: a prototype tried 9 ReLU and 7 GPT-2 settings before these,
judged on success too, and the strength of stage 1 is calibrated on one number of the
paper (SA's cosine, 0.9689), so that SA's cosine is no prediction; the others are.
"""

from collections.abc import Iterator

from circuits.claims import Claim, under
from trained.analogy.config import Config

from . import depth, hop, joint, order, order_end_to_end, ours


def claims(config: Config) -> Iterator[Claim]:
    """The tree at a configuration; what a run did not train is not tested."""
    yield from under("Joint training aligns and transfers", joint.claims(config))
    yield from under("The order decides", order.claims(config))
    yield from under("The order decides", order_end_to_end.claims(config))
    headline = "Two-hop is analogy with an identity bridge"
    yield from under(headline, hop.claims(config))
    yield from under("Alignment grows with depth", depth.claims(config))
    yield from under("Ours", ours.claims(config))
