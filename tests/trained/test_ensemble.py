"""Many models as one program."""

import pytest
import torch
from torch import Tensor, nn

from tests.toy import SEEDS, Net, points, squared_error
from trained.ensemble import Ensemble, leaves, rows, stack


def data() -> dict[str, Tensor]:
    return stack([points(seed, 0) for seed in SEEDS])


def test_each_model_sees_its_own_parameters_buffers_and_data() -> None:
    models = [Net(seed) for seed in SEEDS]
    expected = [
        squared_error(m, points(s, 0)) for m, s in zip(models, SEEDS, strict=True)
    ]
    values = Ensemble(models).values(squared_error, data())
    torch.testing.assert_close(values, torch.stack(expected))


@pytest.mark.parametrize("n_models", [1, 3])
def test_gradients_of_the_sum_are_those_of_each_model(n_models: int) -> None:
    seeds = SEEDS[:n_models]
    ensemble = Ensemble([Net(seed) for seed in seeds])
    for tensor in ensemble.parameters.values():
        tensor.requires_grad_()
    stacked = stack([points(seed, 0) for seed in seeds])
    ensemble.values(squared_error, stacked).sum().backward()
    for index, seed in enumerate(seeds):
        model = Net(seed)
        squared_error(model, points(seed, 0)).backward()
        for name, parameter in model.named_parameters():
            gradient = ensemble.parameters[name].grad
            assert gradient is not None
            torch.testing.assert_close(gradient[index], parameter.grad)


def test_the_models_given_are_not_changed() -> None:
    models = [Net(seed) for seed in SEEDS]
    ensemble = Ensemble(models)
    with torch.no_grad():
        ensemble.parameters["first"].zero_()
    assert torch.equal(models[0].first, Net(0).first)


class Tied(nn.Module):
    """One matrix in two places."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        source = torch.Generator().manual_seed(seed)
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)
        self.first.weight = nn.Parameter(torch.randn(4, 4, generator=source))
        self.second.weight = self.first.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.first(x).relu())


def tied_size(model: Tied, x: Tensor) -> Tensor:
    return model(x).square().mean()


@pytest.mark.parametrize("n_models", [1, 3])
def test_a_tied_matrix_is_swapped_in_both_places(n_models: int) -> None:
    models = [Tied(seed) for seed in range(n_models)]
    ensemble = Ensemble(models)
    for tensor in ensemble.parameters.values():
        tensor.requires_grad_()
    x = torch.randn(n_models, 5, 4)
    values = ensemble.values(tied_size, x)
    values.sum().backward()
    for index, model in enumerate(models):
        own = torch.func.functional_call(
            model, dict(model.named_parameters()), x[index]
        )
        torch.testing.assert_close(values[index], own.square().mean())
        own.square().mean().backward()
        gradient = ensemble.parameters["first.weight"].grad
        assert gradient is not None
        torch.testing.assert_close(gradient[index], model.first.weight.grad)


def test_after_a_failure_a_model_has_its_own_tensors_again() -> None:
    ensemble, seen = Ensemble([Net(seed) for seed in SEEDS]), []

    def fails(model: Net, _data: dict[str, Tensor]) -> Tensor:
        seen.append(model)
        raise ValueError("on purpose")

    with pytest.raises(ValueError, match="on purpose"):
        ensemble.values(fails, data())
    assert isinstance(seen[0].first, nn.Parameter)
    torch.testing.assert_close(
        ensemble.values(squared_error, data()),
        Ensemble([Net(seed) for seed in SEEDS]).values(squared_error, data()),
    )


def test_a_loaded_state_comes_back() -> None:
    ensemble = Ensemble([Net(seed) for seed in SEEDS])
    state = ensemble.state()
    with torch.no_grad():
        ensemble.parameters["first"].zero_()
        ensemble.buffers["shift"].zero_()
    ensemble.load(state)
    for name, tensor in ensemble.state().items():
        assert torch.equal(tensor, state[name])
    assert torch.equal(state["shift"][1], Net(SEEDS[1]).shift)


def test_buffers_that_are_not_stored_are_left_out_of_the_state() -> None:
    model = nn.Linear(2, 2)
    model.register_buffer("mask", torch.ones(2), persistent=False)
    assert set(Ensemble([model]).state()) == {"weight", "bias"}


def test_rows_picks_each_seeds_own_rows() -> None:
    tree = {"x": torch.tensor([[10, 11, 12], [20, 21, 22]])}
    index = torch.tensor([[2, 0], [1, 1]])
    assert rows(tree, index)["x"].tolist() == [[12, 10], [21, 21]]


def test_leaves_are_the_tensors_in_a_fixed_order() -> None:
    one, two = torch.zeros(1), torch.ones(1)
    assert [leaf.item() for leaf in leaves({"b": two, "a": one})] == [1.0, 0.0]
