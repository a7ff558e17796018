"""The folded model computes what its formula says and nothing sees the future."""

import torch

from circuits.studies.lego.substitutes import ByPlace
from tests.lego_models import N_VARIABLES, sentences, wired
from trained.lego.model import FoldedModel, Uniform, places
from trained.lego.task import Vocabulary, clause_losses, right_steps, rollout

SIZES = Vocabulary(N_VARIABLES, 3, 3)


def random_model(seed: int = 0) -> FoldedModel:
    source = torch.Generator().manual_seed(seed)
    model = FoldedModel(SIZES, n_heads=2, d_mlp=7, generator=source)
    return model.attend(wired().tables)


def test_the_formula_written_out() -> None:
    model, batch = random_model(), sentences(2, 1)
    tables, attn, mlp = model.tables, model.block.attn, model.block.mlp
    with torch.no_grad():
        tables.Q43.normal_(generator=torch.Generator().manual_seed(1))
        tables.Q44.normal_(generator=torch.Generator().manual_seed(2))
    x, g, y = batch.variables[0], batch.actions[0], batch.values[0]
    predicates = [
        attn.W_V1[x[k + 1]] + attn.W_V2[g[k]] + attn.W_V3[x[k]] for k in (0, 1)
    ]
    answers = [attn.W_V4[x[k]] + attn.W_V5[y[k]] for k in (0, 1)]
    for query in (0, 1):
        pre = mlp.b_in.clone()
        for head in (0, 1):
            scores = [tables.Q43[head, x[query], x[k]] for k in (0, 1)]
            scores += [tables.Q44[head, x[query], x[k]] for k in range(query + 1)]
            weights = torch.stack(scores).softmax(0)
            values = torch.stack([*predicates, *answers[: query + 1]])[:, head]
            pre = pre + weights @ values
        expected = pre.relu() @ mlp.W_out + mlp.b_out
        found = model(batch.tokens(SIZES))
        torch.testing.assert_close(found.variable[0, query], expected[:N_VARIABLES])
        torch.testing.assert_close(found.value[0, query], expected[N_VARIABLES:])


def test_no_query_sees_a_later_answer() -> None:
    model, batch = random_model(), sentences(4, 5)
    changed = batch.values.clone()
    changed[:, 2:] = (changed[:, 2:] + 1) % 3
    clean = model(batch.tokens(SIZES)).value
    other = model(batch._replace(values=changed).tokens(SIZES)).value
    assert torch.equal(clean[:, :2], other[:, :2])
    assert not torch.allclose(clean[:, 2:], other[:, 2:])


def test_keys_are_2l_and_rows_sum_to_one() -> None:
    model, batch = random_model(), sentences(4, 3)
    _, cache = model.run_with_cache(batch.tokens(SIZES))
    pattern = cache["blocks.0.attn.hook_pattern"]
    assert pattern.shape == (3, 2, 4, 8)
    torch.testing.assert_close(pattern.sum(-1), torch.ones(3, 2, 4))
    assert (pattern[:, :, 1, 6:] == 0).all()
    result = cache["blocks.0.attn.hook_result"].sum(2)
    torch.testing.assert_close(result, cache["blocks.0.hook_attn_out"])


def test_a_listener_on_heads_changes_nothing() -> None:
    model, batch = random_model(), sentences(4, 3)
    plain = model(batch.tokens(SIZES)).value
    heard, _ = model.run_with_cache(batch.tokens(SIZES))
    torch.testing.assert_close(heard.value, plain)


def test_the_order_of_predicates_does_not_matter() -> None:
    model, batch = random_model(), sentences(5, 10)
    order = torch.randperm(5, generator=torch.Generator().manual_seed(3))
    permuted = batch._replace(places=order.expand(10, 5))
    first, second = (model(b.tokens(SIZES)) for b in (batch, permuted))
    torch.testing.assert_close(first, second)
    by_place = model.attend(ByPlace(2, N_VARIABLES))
    first, second = (by_place(b.tokens(SIZES)) for b in (batch, permuted))
    assert not torch.allclose(first.value, second.value)


def test_the_wired_model_is_right_and_blind_it_is_not() -> None:
    model, batch = wired(), sentences(9, 50)
    variable, value = right_steps(model(batch.tokens(SIZES)), batch)
    assert variable.all()
    assert value.all()
    blind = wired().attend(Uniform(2))
    variable, value = right_steps(blind(batch.tokens(SIZES)), batch)
    assert value.double().mean() < 0.6
    assert not variable.all(1).any()


def test_part_of_the_queries_is_part_of_the_answer() -> None:
    model, batch = random_model(), sentences(4, 3)
    tokens = batch.tokens(SIZES)
    whole = model(tokens).value
    last = model(tokens, n_predicates=4, queries=slice(-1, None)).value
    torch.testing.assert_close(last[:, 0], whole[:, -1])
    at = places(SIZES.slots(tokens), 4, slice(1, 3))
    assert at.queries.tolist() == [1, 2]
    assert at.visible.sum(1).tolist() == [6, 7]


def test_a_rollout_is_right_exactly_where_every_step_is() -> None:
    # Weak scores: long chains fail here and there.
    model, batch = wired(score=3.2), sentences(10, 200, seed=4)
    variable, value = right_steps(model(batch.tokens(SIZES)), batch)
    teacher_forced = (variable & value).all(1)
    own = rollout(model, batch, SIZES)
    right = (own.values == batch.values).all(1) & (
        own.variables == batch.variables
    ).all(1)
    assert torch.equal(right, teacher_forced)
    assert 0 < right.double().mean() < 1


def test_values_kept_from_step_to_step_change_nothing() -> None:
    model, batch = wired(score=3.2), sentences(10, 30, seed=5)
    plain = rollout(model, batch, SIZES)
    kept = rollout(model, batch, SIZES, values=model.block.attn.values)
    assert torch.equal(plain.values, kept.values)
    assert torch.equal(plain.variables, kept.variables)


def test_a_rollout_sees_nothing_of_the_true_answers() -> None:
    model, batch = random_model(), sentences(5, 10)
    # The predicates are made from the variables, so only the values can be hidden.
    hidden = torch.cat([batch.values[:, :1], 0 * batch.values[:, 1:]], 1)
    own = rollout(model, batch, SIZES)
    blanked = rollout(model, batch._replace(values=hidden), SIZES)
    assert torch.equal(own.values, blanked.values)
    assert torch.equal(own.variables, blanked.variables)


def test_losses_of_a_sure_and_of_an_ignorant_model() -> None:
    batch = sentences(4, 30)
    sure = clause_losses(wired()(batch.tokens(SIZES)), batch)
    assert sure[0] < 0.1
    assert sure[1] < 0.02
    silent = wired()
    with torch.no_grad():
        silent.block.mlp.W_out.zero_()
    lost = clause_losses(silent(batch.tokens(SIZES)), batch)
    torch.testing.assert_close(lost[0], torch.tensor(12.0).log())
    torch.testing.assert_close(lost[1], torch.tensor(3.0).log())
