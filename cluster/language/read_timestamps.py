"""``TO_TIMESTAMP(x, 'dd.MM.yyyy HH:mm')``: a timestamp of a text by a pattern, made of calls that plans have anyway."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from sqlglot import exp

from cluster.expressions import timestamps
from cluster.expressions.called_functions import RegexMatches, RegexReplace, TimeCall
from cluster.language.typing_rules import Typed
from cluster.scalars.patterns import literal
from protocols.wire.streams import FieldType

if TYPE_CHECKING:
    from cluster.language.context import Context

_WIDTHS = {"%Y": 4, "%m": 2, "%d": 2, "%H": 2, "%M": 2, "%S": 2, "%f": 6}
"""Digits of each part that can be read, by its specifier."""
_NEEDED = ("%Y", "%m", "%d")
_ISO = (("%Y", "-"), ("%m", "-"), ("%d", "T"), ("%H", ":"), ("%M", ":"), ("%S", "."), ("%f", ""))
_PIECE = re.compile(r"%.|[^%]+", re.DOTALL)
_READ = "yyyy, MM and dd, and HH, mm, ss and SSSSSS, each once and with all of its digits"


def read_by(context: Context, at: exp.Expr, typed: Typed, pattern: str) -> Typed:
    """Return the timestamp, in UTC, that a text gives by a pattern of STRFTIME; NULL of any other text.

    Raises
    ------
    FjordSqlError
        If something in the pattern cannot be read, or no day is.
    """
    regex, groups = "", dict[str, int]()
    for piece in _PIECE.findall(pattern):
        if piece in _WIDTHS and piece not in groups:
            groups[piece] = len(groups) + 1
            regex += rf"(\d{{{_WIDTHS[piece]}}})"
        elif piece.startswith("%") and piece != "%%":
            raise context.error(at, "not all of this pattern can be read", f"TO_TIMESTAMP reads {_READ}")
        else:
            regex += literal(piece.replace("%%", "%"))
    if not all(each in groups for each in _NEEDED):
        raise context.error(at, "no day can be read by this pattern", f"TO_TIMESTAMP reads {_READ}")
    iso = "".join(f"\\{groups[each]}{mark}" if each in groups else f"00{mark}" for each, mark in _ISO)
    constants = {"pattern": exp.Literal.string(f"^{regex}$")}
    found = RegexReplace(this=typed.expression.copy(), **constants, replacement=exp.Literal.string(iso))
    read = TimeCall(this=timestamps.OF_TEXT, expressions=[found])
    fits = RegexMatches(this=typed.expression, pattern=constants["pattern"].copy())
    return Typed(exp.Case(ifs=[exp.If(this=fits, true=read)]), FieldType.TIMESTAMP)
