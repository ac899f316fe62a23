"""Two ways in which a radio loses packets: independently, and in bursts."""

from __future__ import annotations

from typing import Annotated

import msgspec
import numpy as np
from msgspec import Meta

Probability = Annotated[float, Meta(ge=0, le=1)]


class Bernoulli(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", tag="bernoulli"
):
    """Each transmission is lost with the same probability, independently of the one before."""

    share: Probability = 0.0

    @property
    def mean(self) -> float:
        """The lost share in the long run."""
        return self.share


class GilbertElliott(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", tag="gilbert_elliott"
):
    """A link that is good or bad, and stays so for a while (Gilbert 1960, Elliott 1963).

    Parameters
    ----------
    turns_bad, turns_good
        Probability of changing from good to bad, and back, before each transmission.
    lost_when_good, lost_when_bad
        The lost share in each state.
    """

    turns_bad: Annotated[float, Meta(gt=0, le=1)]
    turns_good: Annotated[float, Meta(gt=0, le=1)]
    lost_when_good: Probability = 0.0
    lost_when_bad: Probability = 1.0

    @property
    def mean(self) -> float:
        """The lost share in the long run."""
        bad = self.turns_bad / (self.turns_bad + self.turns_good)
        return bad * self.lost_when_bad + (1 - bad) * self.lost_when_good


LossModel = Bernoulli | GilbertElliott


class Link:
    """The link of one mote: the next loss depends on its state.

    Parameters
    ----------
    model
        The model of losses.
    generator
        The random generator.
    """

    def __init__(self, model: LossModel, generator: np.random.Generator) -> None:
        self._model = model
        self._generator = generator
        self._bad = False

    def loses(self) -> bool:
        """Return whether the next transmission is lost."""
        model = self._model
        if isinstance(model, Bernoulli):
            return bool(self._generator.random() < model.share)
        change, chance = self._generator.random(2)
        if change < (model.turns_good if self._bad else model.turns_bad):
            self._bad = not self._bad
        return bool(chance < (model.lost_when_bad if self._bad else model.lost_when_good))
