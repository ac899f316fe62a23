"""Windows of sessions: tuples that come after each other without a gap."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, NoReturn, final

from cluster.operators.columns import Schema
from cluster.operators.errors import UnboundedPlanError
from cluster.operators.families import CountsCopies, CutAtWatermarks, Keyed, NotEstimated, PassesErrors, Window
from cluster.operators.node import Conditions, Need
from cluster.operators.operation import Operation, listed, own
from cluster.operators.window_shapes import Session
from cluster.shared_nodes import remembered
from protocols.text.quantities import format_duration


@final
class SessionWindow(
    Keyed, NotEstimated, CutAtWatermarks, PassesErrors, CountsCopies, Window, frozen=True, tag="SessionWindow"
):
    """Sessions of each combination of `keys`; of the whole stream without any."""

    written_as: ClassVar[str] = "a window of sessions"
    keys: tuple[str, ...]
    session: Session

    def describe(self) -> str:
        """Return one line about it."""
        return session_words(self.session, self.keys)

    def operation(self, lag_us: int | None = None) -> SessionWindowOperation:
        """Return what runs of it."""
        return SessionWindowOperation(self.schema, self.keys, self.session, lag_us)

    @property
    def is_instantaneous(self) -> bool:
        """Unless it is shown while it is open."""
        return not self.session.early

    @property
    def rows_last_us(self) -> int:
        """As long as a session does."""
        return self.session.longest_us

    def needed_below(self, wanted: frozenset[str], conditions: Conditions) -> Iterator[Need]:
        """Yield all tuples, as each may be the one that links two, with the columns that are wanted and the keys."""
        del conditions
        yield self.input, (wanted & self.input.names) | frozenset(self.keys), ()

    def reach_us(self) -> NoReturn:
        """Raise: there is no bound."""
        raise UnboundedPlanError("where a session begins depends on all tuples before it")

    delay_us = reach_us

    def published_us(self) -> NoReturn:
        """Raise: there is no bound."""
        raise UnboundedPlanError("rows are valid until a tuple comes, or for ever")

    @property
    @remembered
    def full_after_us(self) -> int:
        """The longest session after the input."""
        return self.input.full_after_us + self.session.longest_us


@final
class SessionWindowOperation(Operation, frozen=True, tag="SessionWindow"):
    """Rows of sessions of each combination of `keys`, at the instant at which their session closes, or until then.

    Parameters
    ----------
    columns
        Of the input.
    keys, session
        The sessions.
    lag_us
        How far it may lag behind its input, where rows last until the end; None for any distance.
    """

    columns: Schema
    keys: tuple[str, ...]
    session: Session
    lag_us: int | None

    def describe(self) -> str:
        """Return one line about it."""
        return session_words(self.session, own(self.keys))

    @property
    def holds_rows_back(self) -> bool:
        """If sessions are shown while they are open."""
        return self.session.early


def session_words(session: Session, keys: tuple[str, ...]) -> str:
    """Return one line about a window of sessions."""
    shown = ", shown while they are open" if session.early else ""
    of_each = f" of each {listed(keys)}" if keys else ""
    gap, longest = format_duration(session.gap_us), format_duration(session.longest_us)
    return f"sessions{of_each} with gaps of at most {gap}, cut after {longest}{shown}"
