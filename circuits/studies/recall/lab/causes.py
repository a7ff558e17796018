"""What is the answer made of? Edits of W_KQ, the attention, the memory and the prompt.

Functions of (model, episodes). A changed word is a transplant: its embedding comes from
a donor prompt that has it, the rest of the prompt stays. All but `written`, `asked` and
`shown` concern the first step with two examples. An edit that finds nothing to change
has no effect (`or_intact`): that is what it shows of a model without the mechanism.
"""

from contextlib import AbstractContextManager
from dataclasses import replace

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from circuits.interventions.ablation import Edges, ablate, knock_out
from circuits.interventions.edit import Transplant, Zero
from circuits.interventions.part import Part
from circuits.interventions.passes import answer_logits
from circuits.interventions.weights import WeightEdit, edited
from probes.statistics import tie_split_accuracy
from trained.errors import or_intact
from trained.recall.model import RecallModel, memory_neurons
from trained.recall.task import Episodes, Vocabulary, confusing_relations
from trained.seeding import generator
from trained.task import Batch

KEY_QUERY = "blocks.0.attn.W_KQ"


def rewired(model: RecallModel, edit: WeightEdit) -> RecallModel:
    """The model with another key-query matrix, if the edit changes it."""
    return or_intact(lambda: edited(model, {KEY_QUERY: edit}), lambda: model)


def swapping(*pairs: tuple[int, int]) -> WeightEdit:
    """Exchange rows of the key-query matrix; its first rows are the key positions."""

    def swap(matrix: Tensor) -> Tensor:
        order = torch.arange(len(matrix))
        for one, other in pairs:
            order[[one, other]] = order[[other, one]]
        return matrix[order]

    return swap


def averaging(*groups: tuple[int, int]) -> WeightEdit:
    """Replace rows by their mean."""

    def average(matrix: Tensor) -> Tensor:
        for group in map(list, groups):
            matrix[group] = matrix[group].mean(0)
        return matrix

    return average


def as_large(edit: WeightEdit, source: torch.Generator) -> WeightEdit:
    """A change as large as that of another edit, in a random direction."""

    def move(matrix: Tensor) -> Tensor:
        size = (edit(matrix.clone()) - matrix).norm()
        direction = torch.randn(matrix.shape, generator=source).to(matrix)
        return matrix + direction * (size / direction.norm())

    return move


def pairs_of(batch: Batch) -> Int[Tensor, "pair 2"]:
    """Positions of the examples' (subject, answer) pairs, the same in all prompts."""
    return torch.stack([batch.role("subjects")[0], batch.role("answers")[0]], 1)


def position_edits(batch: Batch, n_rows: int, seed: int) -> dict[str, WeightEdit]:
    """Edits of the rows of W_KQ that score the positions, and their controls."""
    (s1, a1), (s2, a2) = pairs_of(batch).tolist()
    query = int(batch.role("query")[0])
    source = generator(seed, "edits of W_KQ")
    n_positions = 2 * batch.role("subjects").shape[1] + 3
    words = n_positions + torch.randperm(n_rows - n_positions, generator=source)
    across = averaging((s1, s2), (a1, a2))
    return {
        "answers swapped": swapping((a1, a2)),
        "pairs swapped": swapping((s1, s2), (a1, a2)),
        "two words swapped": swapping((int(words[0]), int(words[1]))),
        "query swapped": swapping((s1, query)),
        "equal across pairs": across,
        "equal inside pairs": averaging((s1, a1), (s2, a2)),
        "random direction": as_large(across, source),
    }


def confused(model: RecallModel, episodes: Episodes) -> float:
    """Share of the prompts with a confusing relation that decode one, ties split."""
    confusing = confusing_relations(episodes)
    asked = confusing.any(1)
    logits = _relations(model, first_step(model, episodes), episodes)[asked]
    best = logits >= logits.amax(1, keepdim=True) - 1e-4
    return float(((best & confusing[asked]).sum(1) / best.sum(1)).mean())


def relation_accuracy(
    model: RecallModel, episodes: Episodes, batch: Batch | None = None
) -> float:
    """Accuracy on the relation, ties split; of the episodes' first step by default."""
    batch = batch or first_step(model, episodes)
    return tie_split_accuracy(_relations(model, batch, episodes), episodes.relation)


def first_step(model: RecallModel, episodes: Episodes) -> Batch:
    """The episodes' first step, where the model is."""
    return episodes.relation_step().to(model.W_E.device)


def second_step(model: RecallModel, episodes: Episodes) -> Batch:
    """The episodes' second step, where the model is."""
    return episodes.answer_step().to(model.W_E.device)


def answer_accuracy(
    model: RecallModel, batch: Batch, episodes: Episodes, wanted: Int[Tensor, " batch"]
) -> float:
    """Accuracy on an answer after the second step, ties split."""
    words = Vocabulary.of(episodes.table)
    return tie_split_accuracy(
        answer_logits(model, batch)[:, words.answers].cpu(), wanted
    )


def direct_answer(
    model: RecallModel, episodes: Episodes, temperature: float | None
) -> float:
    """Accuracy on the answer at the first step, ties split; or its probability."""
    words = Vocabulary.of(episodes.table)
    logits = answer_logits(model, first_step(model, episodes))[:, words.answers].cpu()
    wanted = episodes.answers[:, -1]
    if temperature is None:
        return tie_split_accuracy(logits, wanted)
    chances = (logits / temperature).softmax(1)
    return float(chances.gather(1, wanted[:, None]).mean())


def without(model: RecallModel, episodes: Episodes, role: str) -> float:
    """Accuracy on the relation when EoS cannot see a word, attention renormalised."""
    batch = first_step(model, episodes)

    def cut() -> float:
        with knock_out(model, batch, [Edges(0, None, role)]):
            return relation_accuracy(model, episodes, batch)

    return or_intact(cut, lambda: relation_accuracy(model, episodes, batch))


def silenced(
    model: RecallModel, episodes: Episodes, neurons: Int[Tensor, "batch neuron"]
) -> float:
    """Accuracy on the relation with some neurons of the memory, prompt by prompt, 0."""
    batch = first_step(model, episodes)

    def silence() -> float:
        with ablate(model, batch, [Part("mlp_act", 0, units=neurons)], Zero()):
            return relation_accuracy(model, episodes, batch)

    return or_intact(silence, lambda: relation_accuracy(model, episodes, batch))


def fact_neurons(episodes: Episodes, example: int) -> Int[Tensor, "batch 1"]:
    """The neuron that gives the relations of an example's pair."""
    neurons = memory_neurons(episodes.table)[1]
    subject, answer = episodes.subjects[:, example], episodes.answers[:, example]
    return neurons[subject, answer][:, None]


def unrelated_neurons(episodes: Episodes) -> Int[Tensor, "batch 2"]:
    """Active relation neurons that neither the true nor a confusing relation uses.

    Those of (s1, a3) and (s2, a3): the prompt shows the subject, so they fire, unlike
    neurons of hidden pairs, which would be silent anyway.
    """
    neurons = memory_neurons(episodes.table)[1]
    return neurons[episodes.subjects[:, :2], episodes.answers[:, 2:]]


def replaced_pair(
    model: RecallModel, episodes: Episodes, seed: int
) -> tuple[float, float]:
    """The first answer from another relation, so that both pairs fit a third one.

    Returns:
        How often the relation through (new pair 1, pair 2) is decoded, and how often
        still the original one.
    """
    table, n = episodes.table, episodes.table.shape[1]
    answers, count = episodes.answers, len(episodes.relation)
    shift = torch.randint(1, n, (count,), generator=generator(seed, "replaced pair"))
    replaced = (answers[:, 0] + shift) % n
    # The two pairs must not share their answer: no bijection would fit.
    usable = replaced != answers[:, 1]
    kept, new = episodes.where(usable), replaced[usable]
    images = table.T[kept.subjects]
    fits = images[:, 0] == new[:, None]
    fits &= images[:, 1] == kept.answers[:, 1:2]
    batch = first_step(model, kept)
    donors = _written(batch, "answer0", n + new)
    with _exchanged(model, batch, "answer0", donors):
        best = _relations(model, batch, kept).argmax(1, keepdim=True)
    return _share(fits.gather(1, best)[:, 0]), _share(best[:, 0] == kept.relation)


def written(model: RecallModel, episodes: Episodes, seed: int) -> tuple[float, float]:
    """Another relation written: the answer by it, and the original answer."""
    other = _other_relation(episodes, generator(seed, "written"))
    changed = Episodes(episodes.table, other, episodes.subjects)
    batch, donors = second_step(model, episodes), second_step(model, changed)
    with _exchanged(model, batch, "relation", donors):
        return _either(model, batch, episodes, changed.answers, episodes.answers)


def asked(model: RecallModel, episodes: Episodes, seed: int) -> tuple[float, float]:
    """Another query at the second step: the answer to it, and the original one."""
    n, subjects = episodes.table.shape[1], episodes.subjects
    noise = torch.rand(len(subjects), n, generator=generator(seed, "query"))
    other = noise.scatter(1, subjects, -1.0).argmax(1)
    # With three subjects all are shown; one of the examples' then becomes the query.
    seen = (other[:, None] == subjects).any(1)
    other = torch.where(seen, subjects[:, 0], other)
    own = torch.cat([subjects[:, :-1], other[:, None]], 1)
    changed = Episodes(episodes.table, episodes.relation, own)
    batch, donors = second_step(model, episodes), second_step(model, changed)
    with _exchanged(model, batch, "query", donors):
        return _either(model, batch, episodes, changed.answers, episodes.answers)


def shown(model: RecallModel, episodes: Episodes, seed: int) -> tuple[float, float]:
    """Examples of another relation at the second step: the original answer, and its."""
    other = _other_relation(episodes, generator(seed, "context"))
    changed = Episodes(episodes.table, other, episodes.subjects)
    batch, donors = second_step(model, episodes), second_step(model, changed)
    with _exchanged(model, batch, "answers", donors):
        return _either(model, batch, episodes, episodes.answers, changed.answers)


def _exchanged(
    model: RecallModel, batch: Batch, role: str, donors: Batch
) -> AbstractContextManager[None]:
    """A role's words come from the donors."""
    part = Part("resid_pre", 0, positions=role)
    return ablate(model, batch, [part], Transplant(donors))


def _written(batch: Batch, role: str, words: Int[Tensor, " batch"]) -> Batch:
    """The prompts with another word at a role."""
    places = batch.role(role)
    new = words.to(batch.tokens)[:, None].expand_as(places)
    return replace(batch, tokens=batch.tokens.scatter(1, places, new))


def _other_relation(
    episodes: Episodes, source: torch.Generator
) -> Int[Tensor, " batch"]:
    n_relations = len(episodes.table)
    step = torch.randint(1, n_relations, episodes.relation.shape, generator=source)
    return (episodes.relation + step) % n_relations


def _relations(model: RecallModel, batch: Batch, episodes: Episodes) -> Tensor:
    """Logits of the relation tokens."""
    words = Vocabulary.of(episodes.table)
    return answer_logits(model, batch)[:, words.relations].cpu()


def _either(
    model: RecallModel,
    batch: Batch,
    episodes: Episodes,
    *several: Int[Tensor, "batch subject_pos"],
) -> tuple[float, float]:
    """Accuracy on the query's answer by two lists of answers."""
    first, second = (
        answer_accuracy(model, batch, episodes, answers[:, -1]) for answers in several
    )
    return first, second


def _share(hits: Bool[Tensor, " batch"]) -> float:
    return float(hits.double().mean())
