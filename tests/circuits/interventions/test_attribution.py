"""Attributions add up, and name the wired heads."""

from typing import Literal

import pytest
import torch
from torch import nn

from circuits.interventions.attribution import logit_attribution
from circuits.interventions.passes import answer_logits
from tests.ground_truth import Decoder, DecoderConfig, GroundTruth, OneQueryModel
from tests.intervention_pairs import pair_of, random_decoder, random_pair
from trained.errors import BadInput


def test_the_head_that_writes_the_answer_gets_its_logit(two_hop: GroundTruth) -> None:
    """10 for head 0 of block 1, nothing for the rest."""
    pair = pair_of(two_hop)
    found = logit_attribution(two_hop.model, pair.clean, pair.corrupt.targets)
    assert found.axes == ("component", "example")
    expected = {"L1H0": 10.0}
    for name in found.labels["component"]:
        value = found.select(component=name).values
        wanted = torch.full_like(value, expected.get(str(name), 0.0))
        torch.testing.assert_close(value, wanted, atol=1e-5, rtol=0)


def test_without_a_circuit_nobody_speaks_for_the_answer(
    uninformed: GroundTruth,
) -> None:
    """The vote of r2 for c_0 comes from the embedding alone."""
    pair = pair_of(uninformed)
    found = logit_attribution(uninformed.model, pair.clean, pair.corrupt.targets)
    others = [name for name in found.labels["component"] if name != "embedding"]
    assert float(found.select(component=others).values.abs().max()) == 0
    assert float(found.select(component="embedding").values.abs().max()) == 10


@pytest.mark.parametrize("head", ["tied", "affine"])
@pytest.mark.parametrize("d_model", [12, 15])
def test_components_add_up_to_the_logit_difference(
    head: Literal["tied", "affine"], d_model: int
) -> None:
    config = DecoderConfig(
        d_vocab=13,
        d_model=d_model,
        n_layers=2,
        n_heads=3,
        n_ctx=6,
        init_std=0.4,
        head=head,
    )
    source = torch.Generator().manual_seed(0)
    model = Decoder(config, generator=source).double()
    for parameter in model.parameters():
        if parameter.ndim == 1:
            parameter.data.normal_(generator=source)
    clean, _, reading = random_pair()
    wrong = (clean.targets + 1) % 13
    for place in ("last", 2):
        found = logit_attribution(model, clean, wrong, read_at=place)
        logits = answer_logits(model, clean, place)
        torch.testing.assert_close(found.values.sum(0), reading.metric(logits, clean))


def test_names_follow_the_model() -> None:
    clean, _, _ = random_pair()
    model = random_decoder(n_layers=2)
    found = logit_attribution(model, clean, clean.targets + 1)
    assert found.labels["component"] == (
        "embedding",
        *("L0H0", "L0H1", "L0H2", "L0 bias", "L0 mlp"),
        *("L1H0", "L1H1", "L1H2", "L1 bias", "L1 mlp"),
        "constant",
    )


def test_a_model_without_a_readout_is_refused() -> None:
    clean, _, _ = random_pair()
    with pytest.raises(BadInput, match="OneQueryModel has no readout of a last resid"):
        logit_attribution(OneQueryModel(), clean, clean.targets)
    with pytest.raises(BadInput, match="Identity cannot be observed"):
        logit_attribution(nn.Identity(), clean, clean.targets)


def test_wrong_answers_that_would_broadcast_are_refused() -> None:
    clean, _, _ = random_pair()
    for shape in ((), (1,), (4, 1)):
        wrong = torch.zeros(shape, dtype=torch.long)
        with pytest.raises(BadInput, match=r"for targets of shape \(4,\)"):
            logit_attribution(random_decoder(), clean, wrong)
