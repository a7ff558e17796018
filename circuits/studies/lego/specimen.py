"""A trained model with what is needed to ask it something."""

import copy
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

from jaxtyping import Int
from torch import Tensor, nn

from trained.lego.action import Action, action
from trained.lego.folded import ByVariable, FoldedModel
from trained.lego.sentences import Order, Sentences, draw_sentences, table_of
from trained.lego.standard import StandardModel
from trained.lego.theory_model import TheoryModel
from trained.seeding import generator


@dataclass(frozen=True)
class Specimen:
    """One trained model, its group and its seed."""

    group: str
    seed: int
    model: FoldedModel | StandardModel | TheoryModel
    n_variables: int

    @property
    def action(self) -> Action:
        """The group's action."""
        return action(self.group)

    @property
    def chance(self) -> float:
        """The accuracy of guessing a value."""
        return 1 / self.action.n_values

    @cached_property
    def table(self) -> Int[Tensor, "g y"]:
        """[g, y] -> g(y)."""
        return table_of(self.action)

    def sentences(
        self, length: int, count: int, *, order: Order = "in order"
    ) -> Sentences:
        """Test sentences; the same for every model of a group and seed."""
        source = generator(self.seed, "lego", "test", self.action.slug, length, order)
        return draw_sentences(
            self.table,
            count,
            length,
            n_variables=self.n_variables,
            order=order,
            generator=source,
        )

    @property
    def folded(self) -> FoldedModel:
        """The model, which must be a folded one."""
        assert isinstance(self.model, FoldedModel), "an ordinary transformer"
        return self.model

    @property
    def tables(self) -> ByVariable:
        """The key-query tables of a folded model."""
        return self.folded.tables

    def attending(self, key_query: nn.Module) -> "Specimen":
        """The same FFN with other scores."""
        model = copy.deepcopy(self.folded).attend(key_query)
        return replace(self, model=model)


def each(
    specimens: list[Specimen], quantity: Callable[[Specimen], float]
) -> list[float]:
    """A quantity of every seed."""
    return [quantity(specimen) for specimen in specimens]
