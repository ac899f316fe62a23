"""Stamps: whether a query asks for them, and messages where there is none, or one of several."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from cluster.language.catalog import BaseStream
from cluster.language.syntax import STAMP_NAME, Now, Stamp
from cluster.language.validity_syntax import ValidBound, Validity

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cluster.language.context import Context
    from cluster.language.errors import FjordSqlError

NOWS = (Now, exp.CurrentTimestamp)
"""Classes of NOW()."""
UNTIL = "write WHERE STAMP() > NOW() - INTERVAL '5' MINUTE, which is WINDOW(RANGE 5 MINUTES)"
AGGREGATED = "write MAX(STAMP()) or MIN(STAMP()), or add it to GROUP BY"
SELECTED = "select STAMP() AS at where the stream itself is read, and use that column"


def refuse_now(context: Context, now: exp.Expr) -> FjordSqlError:
    """Return the error about NOW() where it has no meaning."""
    reason = "NOW() goes on without tuples: it can only be compared with STAMP(), by itself in WHERE"
    return context.error(now, reason, UNTIL)


def stamps_read(select: exp.Select, context: Context) -> tuple[bool, frozenset[str]]:
    """Return whether STAMP stands in a SELECT or a subquery of it, and the names there that may be those of stamps.

    Few texts do either, and whether a text may is seen without walking through its tree.
    """
    entries = context.catalog.entries.values()
    named = {(each.stamp or "").casefold() for each in entries if isinstance(each, BaseStream)} - {""}
    named = {each for each in named if each in context.folded}
    if STAMP_NAME not in context.folded and not named:
        return False, frozenset()
    columns = [*select.find_all(exp.Column)]
    names = {each.name.casefold() for each in columns}
    return any(isinstance(each, Stamp) for each in columns), frozenset(named & names)


def ambiguous(reference: exp.Column, aliases: Sequence[str], context: Context) -> FjordSqlError:
    """Return the error about a name, or STAMP(), that several items of FROM have, under these aliases."""
    name = reference.name
    if isinstance(reference, Validity | ValidBound):
        names = [f"VALID({each})" for each in aliases]
        reason = "VALID() is ambiguous: tuples of several streams of FROM have intervals"
    elif isinstance(reference, Stamp):
        names = [f"STAMP({each})" for each in aliases]
        reason = "STAMP() is ambiguous: several streams of FROM have stamps"
    else:
        names = [f"{each}.{name}" for each in aliases]
        reason = f"{name!r} is ambiguous: several streams of FROM have it"
    return context.error(reference, reason, f"write {' or '.join(names)}" if names else "give them aliases")


def check_stamp(reference: exp.Column, context: Context) -> None:
    """Refuse arguments of STAMP that are no name of a stream.

    Raises
    ------
    FjordSqlError
        If there are some.
    """
    if isinstance(reference, Stamp) and (wrong := reference.args.get("expressions")) is not None:
        hint = "it is written STAMP(), or STAMP(t) where t is a stream of FROM"
        raise context.error(wrong[0], "STAMP takes the name of a stream, or nothing", hint)


def without_stamp(reference: exp.Column, context: Context, *, grouped: bool) -> FjordSqlError:
    """Return the error about a stamp where there is none: of groups, or of rows of another kind."""
    written = context.source_text(reference)
    if grouped:
        reason = f"{written} is neither grouped nor aggregated: a group has no stamp, it is valid for a while"
        return context.error(reference, reason, AGGREGATED)
    return context.error(reference, f"{written} is the stamp of a tuple, and the rows here have none", SELECTED)
