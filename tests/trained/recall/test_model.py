import pytest
import torch

from circuits.backends.hooked import sites
from circuits.hooks import intervene, record
from circuits.sites import Site
from trained.recall.model import (
    RecallModel,
    constructed_memory,
    memory_neurons,
    token_embedding,
)
from trained.recall.task import (
    Episodes,
    Vocabulary,
    affine_table,
    all_bijections,
    draw_episodes,
    random_table,
)
from trained.seeding import generator

PATTERN = Site("pattern")
TABLES = {
    "all 3": all_bijections(3),
    "affine 8": affine_table(8, generator=generator(0, "affine")),
    "random 8": random_table(8, 64, generator=generator(0, "random")),
    "sparse 9": random_table(9, 10, generator=generator(0, "sparse")),
}


def model_of(table, n_examples=2):
    embedding = token_embedding(table, 0, dtype=torch.float64)
    keys, values = constructed_memory(table, embedding)
    model = RecallModel(embedding, 2 * n_examples + 3, keys, values)
    return model.requires_grad_(False)


def logits_of(model, first, second):
    """The memory's logits when asked with two tokens, h = phi(u1) + phi(u2)."""
    phi = model.W_E
    return (model.memory((phi[first] + phi[second])[None, None]) @ phi.T)[0, 0]


def test_the_embedding_is_orthogonal():
    phi = token_embedding(all_bijections(3), 0, dtype=torch.float64)
    assert torch.allclose(phi @ phi.T, torch.eye(13, dtype=torch.float64), atol=1e-12)


@pytest.mark.parametrize("name", ["all 3", "sparse 9"])
def test_lemma_1_right_tokens_get_four_and_others_at_most_two(name):
    table = TABLES[name]
    model, words = model_of(table), Vocabulary.of(table)
    n = words.n_subjects
    for index, relation in enumerate(table.tolist()):
        for subject, image in enumerate(relation):
            r, a = 2 * n + index, n + image
            fitting = (table[:, subject] == image).nonzero()[:, 0] + 2 * n
            for asked, right in (
                ((subject, r), [a]),
                ((a, r), [subject]),
                ((subject, a), fitting.tolist()),
            ):
                logits = logits_of(model, *asked)
                wrong = torch.ones(words.size, dtype=torch.bool)
                wrong[right] = False
                assert logits[right].tolist() == pytest.approx([4.0] * len(right))
                assert float(logits[wrong].max()) == pytest.approx(2.0)


def test_the_memory_has_three_neurons_per_pair_also_without_a_relation():
    table = TABLES["sparse 9"]
    embedding = torch.eye(Vocabulary.of(table).size)
    keys, values = constructed_memory(table, embedding)
    assert len(keys) == len(values) == 3 * 9**2
    use, subject, answer = 1, 4, int(table[2, 4])
    neuron = int(memory_neurons(table)[use, subject, answer])
    assert keys[neuron].nonzero()[:, 0].tolist() == [subject, 9 + answer]
    relations = (table[:, subject] == answer).nonzero()[:, 0] + 18
    assert values[neuron].nonzero()[:, 0].tolist() == relations.tolist()
    free = next(a for a in range(9) if not (table[:, 0] == a).any())
    empty = int(memory_neurons(table)[use, 0, free])
    assert keys[empty].sum() == 2
    assert values[empty].abs().sum() == 0


def test_table_2_of_the_paper():
    prompt = Episodes(all_bijections(3), torch.tensor([0]), torch.tensor([[0, 1, 2]]))
    model = model_of(prompt.table)
    raw = torch.rand(6, generator=generator(0, "v"), dtype=torch.float64)
    v1, v2, v3, v4, v5, _ = v = raw / raw.sum()
    # Rows by what the relation maps (s1, s2, s3) to; a3 is never in the prompt.
    expected = {
        (0, 1, 2): (v1 + v2) ** 2 + (v3 + v4) ** 2 + v5**2,
        (1, 0, 2): (v1 + v4) ** 2 + (v2 + v3) ** 2 + v5**2,
        (0, 2, 1): (v5 + v4) ** 2 + (v1 + v2) ** 2 + v3**2,
        (1, 2, 0): (v5 + v2) ** 2 + (v1 + v4) ** 2 + v3**2,
        (2, 0, 1): (v5 + v4) ** 2 + (v3 + v2) ** 2 + v1**2,
        (2, 1, 0): (v5 + v2) ** 2 + (v3 + v4) ** 2 + v1**2,
    }
    with intervene(model, {PATTERN: lambda _: v[None, None, None]}):
        logits = model(prompt.relation_step().tokens)[0, 0]
    for row, relation in enumerate(prompt.table.tolist()):
        wanted = float(expected[tuple(relation)])
        assert float(logits[6 + row]) == pytest.approx(wanted, abs=1e-12)
    # Subjects and answers tie: the answer cannot be read at step 1 (Lemma 4).
    squares = v**2
    assert logits[:3].tolist() == pytest.approx([float(squares[[1, 3]].sum())] * 3)
    assert logits[3:6].tolist() == pytest.approx([float(squares[[0, 2, 4]].sum())] * 3)


@pytest.mark.parametrize("name", ["affine 8", "random 8", "sparse 9"])
@pytest.mark.parametrize("k", [2, 3])
def test_equation_18_and_the_second_step(name, k):
    table = TABLES[name]
    n = table.shape[1]
    model = model_of(table, k)
    prompts = draw_episodes(table, k, 20, generator=generator(0, "prompts"))
    noise = torch.rand(20, 2 * k + 3, generator=generator(0, "v"), dtype=torch.float64)
    v = noise[:, :-1] / noise[:, :-1].sum(1, keepdim=True)
    q = noise / noise.sum(1, keepdim=True)
    with intervene(model, {PATTERN: lambda _: v[:, None, None]}):
        first = model(prompts.relation_step().tokens)[:, 0]
    with intervene(model, {PATTERN: lambda _: q[:, None, None]}):
        second = model(prompts.answer_step().tokens)[:, 0, n : 2 * n]
    for b in range(20):
        subjects, answers = prompts.subjects[b].tolist(), prompts.answers[b].tolist()
        for index, relation in enumerate(table.tolist()):
            wanted = float((v[b, :-1] ** 2).sum())
            for i, s in enumerate(subjects):
                for j in range(k):
                    if relation[s] == answers[j]:
                        wanted += 2 * float(v[b, 2 * i] * v[b, 2 * j + 1])
            assert float(first[b, 2 * n + index]) == pytest.approx(wanted, abs=1e-10)
        weights, c = q[b, 0 : 2 * k + 1 : 2], 1 + float(q[b, -1])
        for a in range(n):
            wanted = float((weights**2).sum()) + c**2
            if a in answers:
                own = float(weights[answers.index(a)])
                wanted += (own + c) ** 2 - own**2 - c**2
            assert float(second[b, a]) == pytest.approx(wanted, abs=1e-10)


def spread(logits):
    return float((logits.amax(1) - logits.amin(1)).max())


def test_dropping_empty_rows_would_break_lemma_4():
    table = TABLES["sparse 9"]
    model = model_of(table)
    prompts = draw_episodes(table, 2, 50, generator=generator(0, "prompts"))
    tokens = prompts.relation_step().tokens
    whole = model(tokens)[:, 0, 9:18]
    empty = (model.memory.W_out.reshape(3, 81, -1)[1].norm(dim=1) == 0).repeat(3)
    model.memory.W_out.data[empty] = 0
    assert spread(whole) < 1e-12
    assert spread(model(tokens)[:, 0, 9:18]) > 0.01


def test_the_forward_pass_is_the_papers_formula():
    table = TABLES["affine 8"]
    model = model_of(table)
    source = generator(0, "W")
    model.W_KQ.data.normal_(generator=source)
    prompts = draw_episodes(table, 2, 5, generator=source)
    for batch in prompts.steps().values():
        logits = model(batch.tokens)
        for row, tokens in zip(logits, batch.tokens, strict=True):
            position = torch.eye(7, dtype=torch.float64)[: len(tokens)]
            z = torch.cat([position, model.W_E[tokens]], dim=1)
            weights = (z @ model.W_KQ @ z[-1]).softmax(0)
            h = (z[-1] + weights @ z)[7:]
            f = (model.memory.W_in @ h).square() @ model.memory.W_out
            assert torch.allclose(row[0], model.W_E @ f, atol=1e-10)


def test_transformer_lens_sees_every_site():
    table = TABLES["affine 8"]
    model = model_of(table)
    tokens = draw_episodes(table, 2, 4, generator=generator(0, "p"))
    tokens = tokens.relation_step().tokens
    logits, cache = model.run_with_cache(tokens)
    shapes = {name: tuple(cache[name].shape) for name in cache}
    d = model.W_E.shape[1]
    assert shapes["blocks.0.attn.hook_pattern"] == (4, 1, 1, 6)
    assert shapes["blocks.0.hook_resid_pre"] == (4, 6, d)
    assert shapes["blocks.0.hook_resid_mid"] == (4, 1, d)
    assert shapes["blocks.0.mlp.hook_post"] == (4, 1, 3 * 64)
    assert shapes["blocks.0.hook_resid_post"] == (4, 1, d)
    assert torch.equal(cache["hook_logits"], logits)
    assert torch.allclose(cache["blocks.0.hook_resid_post"] @ model.W_U, logits)
    kinds = {site.kind for site in sites(model)}
    assert {"pattern", "resid_mid", "mlp_act", "resid_post", "logits"} <= kinds


def test_recording_agrees_with_the_cache_and_identity_edits_change_nothing():
    table = TABLES["all 3"]
    model = model_of(table)
    tokens = draw_episodes(table, 2, 3, generator=generator(0, "p"))
    tokens = tokens.relation_step().tokens
    wanted = [Site(k) for k in ("pattern", "resid_mid", "mlp_act", "resid_post")]
    with record(model, wanted) as seen:
        logits = model(tokens)
    _, cache = model.run_with_cache(tokens)
    assert torch.equal(seen[PATTERN], cache["blocks.0.attn.hook_pattern"])
    with intervene(model, {site: lambda x: x.clone() for site in wanted}):
        assert torch.equal(model(tokens), logits)


def test_sizes_are_known():
    model = model_of(TABLES["affine 8"], n_examples=3)
    assert model.n_examples == 3
    assert model.W_KQ.shape == (9 + 73, 9 + 73)
    assert torch.equal(model.W_U, model.W_E.T)
