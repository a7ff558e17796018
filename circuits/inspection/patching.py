"""Which residual carries the answer: patch it from the prompt into a corrupt one."""

import torch

from circuits.interventions.part import position_grid, with_targets
from circuits.interventions.patching import effect, patch_sweep
from circuits.interventions.sweep import Reading, logit_difference
from probes.measurement import Measurement
from trained.errors import BadInput

from .subject import Subject, look_at


@torch.no_grad()
def read_patching(subject: Subject, corrupt: str) -> Measurement:
    """Share of the answer that each residual of the prompt restores, in a corrupt one.

    The model runs on the corrupt prompt with the residual after one layer at one
    position taken from its run on the prompt. The share is that of the logit
    difference between the answer and what the model says to the corrupt prompt: 0 as
    if nothing was patched, 1 as if everything was. Axes ("layer", "position").
    """
    model, clean = subject.model, subject.prompts
    other = look_at(model, corrupt)
    if other.prompts.tokens.shape != clean.tokens.shape:
        raise BadInput(
            f"the corrupt prompt has {len(other.tokens)} tokens, the prompt "
            f"{len(subject.tokens)}: patching needs as many"
        )
    if other.answer == subject.answer:
        answer = subject.show(subject.answer)
        raise BadInput(f"the model says {answer} to the corrupt prompt as well")
    wrong = torch.tensor([other.answer], device=clean.tokens.device)
    right = torch.tensor([subject.answer], device=clean.tokens.device)
    layers, columns = range(model.n_layers), range(len(subject.tokens))
    patched = patch_sweep(
        model,
        with_targets(clean, right),
        other.prompts,
        position_grid("resid_post", layers, columns),
        Reading(logit_difference(wrong)),
    )
    share = effect(patched).mean("example")
    return Measurement(
        share.values,
        ("layer", "position"),
        {"layer": tuple(layers), "position": subject.places},
        name=f"{subject.show(subject.answer)} over {subject.show(other.answer)} "
        "restored by a patch",
        unit="share",
    )
