"""Random aggregates, and the keys of groups as SELECT and HAVING write them again."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from cluster.language.accepted_syntax import QUERY_SYNTAX
from cluster.language.functions import AGGREGATES
from protocols.wire.streams import FieldType
from tests.cluster.aggregate_rows import AGGREGATE_ROWS, NOT_EXACT
from tests.cluster.oracle import text_spelling as spelling
from tests.cluster.oracle.text_expressions import Aggregate, Exactness, Known, Scalar, Words, words
from tests.cluster.oracle.text_forms import Item, Stream
from tests.cluster.oracle.text_intervals import IntervalDrawing
from tests.cluster.oracle.text_items import Offered
from tests.cluster.oracle.text_leaves import Leaf, column, column_leaf, has_column
from tests.cluster.oracle.text_operations import BOOLEAN, INTEGER, REAL, TEXT
from tests.cluster.oracle.text_scalars import KINDS, Scalars

ALLOWED_ERROR = 0.5
"""What every WITHIN allows."""
SPELLINGS: dict[str, tuple[str, ...]] = {
    **{name: row.written for name, row in AGGREGATE_ROWS.items()},
    "bool_and": ("BOOL_AND", "LOGICAL_AND", "EVERY"),
    "bool_or": ("BOOL_OR", "LOGICAL_OR"),
    "string_agg": ("STRING_AGG", "LISTAGG"),
    "first": ("FIRST", "FIRST_VALUE"),
    "last": ("LAST", "LAST_VALUE"),
    "arg_min": ("ARG_MIN", "ARGMIN", "MIN_BY"),
    "arg_max": ("ARG_MAX", "ARGMAX", "MAX_BY"),
}
DISTINCT_TOO = {each.name for kind, each in AGGREGATES.items() if "Distinct" in QUERY_SYNTAX[kind].get("this", ())}
"""Aggregates that the language lets look at each value once."""
QUANTILES = ("approx_quantile", "quantile")
PERCENTILES = ("percentile_cont", "percentile_disc")
"""Quantiles whose share stands in front."""
RANKED = ("arg_min", "arg_max")
NEARLY = (*NOT_EXACT, *QUANTILES, "percentile_cont")
"""Aggregates whose last digits depend on how they are computed."""
OF_NUMBERS = (*AGGREGATE_ROWS, *QUANTILES, "percentile_cont", "sum")


def group_leaves(
    dice: random.Random, scalars: Scalars, arguments: Scalars, offered: Sequence[Offered], keys: Sequence[Scalar],
    *, counts_samples: bool, intervals: IntervalDrawing,
) -> dict[FieldType, list[Leaf]]:  # fmt: skip
    """Return what draws keys and aggregates, by type.

    Parameters
    ----------
    scalars, arguments
        What draws expressions over single rows, and what those in aggregates, where subqueries may stand.
    offered, keys
        The items of FROM, and the keys.
    counts_samples
        True where COMPLETENESS may be one.
    intervals
        Those of the tuples.
    """
    leaves: dict[FieldType, list[Leaf]] = defaultdict(list)
    columns = [known for each in offered for known in each.columns]
    for place, key in enumerate(keys):
        assert key.type is not None
        leaves[key.type].append(lambda _need, place=place, key=key: respelled(dice, key, columns, place))  # type: ignore[misc] # bound now
    draw = _Aggregates(dice, scalars, arguments, offered, columns, counts_samples=counts_samples, intervals=intervals)
    for kind in KINDS:
        leaves[kind].append(lambda need, kind=kind: draw.aggregate(kind, need))  # type: ignore[misc] # bound now
    leaves[INTEGER].append(lambda _need: draw.filtered(count_all()))
    for kind, more in intervals.aggregates().items():
        leaves[kind] += more
    if named := [place for place, key in enumerate(keys) if has_column(key)]:
        leaves[INTEGER].append(lambda _need: _grouping(dice, keys, named, columns))
    return leaves


def _grouping(
    dice: random.Random, keys: Sequence[Scalar], named: Sequence[int], columns: Sequence[Known]
) -> Scalar:  # fmt: skip
    """Return GROUPING of some keys, which are written again."""
    places = [dice.choice(named) for _ in range(dice.choice((1, 1, 2, 3)))]
    parts = tuple(respelled(dice, keys[place], columns, place) for place in places)
    name = dice.choice(("GROUPING", "GROUPING", "GROUPING_ID"))
    text = words(f"{name}({', '.join(f'{{{number}}}' for number in range(len(parts)))})")
    return Scalar(INTEGER, text, (), parts, label="GROUPING", aggregate=Aggregate("grouping"), default="grouping")


def respelled(dice: random.Random, key: Scalar, columns: Sequence[Known], place: int | None = None) -> Scalar:
    """Return a key as it may be written again: its columns with or without the name of their item, in other cases."""
    if key.known is not None:
        again = column(dice, key.known, columns, plain=True)
        return replace(again, key=place)
    return replace(key, parts=tuple(respelled(dice, part, columns) for part in key.parts), key=place)


def count_all() -> Scalar:
    """Return COUNT(*)."""
    return Scalar(INTEGER, ("COUNT(*)",), (), label="COUNT(*)", aggregate=Aggregate("count"), default="count")


class _Aggregates:
    def __init__(
        self, dice: random.Random, scalars: Scalars, arguments: Scalars, offered: Sequence[Offered],
        columns: Sequence[Known], *, counts_samples: bool, intervals: IntervalDrawing,
    ) -> None:  # fmt: skip
        self._may_count = counts_samples
        self._intervals = intervals
        self._dice = dice
        self._scalars = scalars
        self._arguments = arguments
        self._offered = offered
        self._columns = columns
        self._before: Scalar | None = None

    def aggregate(self, kind: FieldType, need: Exactness) -> Scalar:
        """Return an aggregate that gives a type, of those that may be as exact as needed."""
        before = self._before
        if before is not None and before.type is kind and self._dice.random() < 0.3:
            self._before = None
            return _quoting(before)
        found = self._any(kind, need)
        if found.parts and _quoting(found) != found:
            self._before = found
        return found

    def _any(self, kind: FieldType, need: Exactness) -> Scalar:
        dice = self._dice
        choices = ["min", "max", "first", "last", "mode", "percentile_disc", *RANKED]
        if kind is INTEGER:
            choices += ["count", "count", "sum"]
        if kind is BOOLEAN:
            choices += ["bool_and", "bool_or"]
        if kind is REAL:
            choices += [*OF_NUMBERS, "avg", "sum", "error"]
            choices += ["completeness"] if self._counts_samples() else []
        if kind is TEXT:
            choices.append("string_agg")
        usable = [each for each in choices if need is Exactness.NEARLY or each not in NEARLY]
        function = self._scalars.turns.choose(dice, usable, ("aggregate", kind))
        if function == "completeness":
            own = Aggregate(function)
            return Scalar(REAL, ("COMPLETENESS()",), (), label="COMPLETENESS()", aggregate=own, default="completeness")
        if function == "error":
            return self._error_bound() or self._of("max", kind)
        if function in ("first", "last"):
            return self.filtered(self._by_stamp(function, kind) or self._of("max", kind))
        if function in RANKED:
            return self.filtered(self._ranked(function, kind))
        return self.filtered(self._of(function, kind))

    def _ranked(self, function: str, kind: FieldType) -> Scalar:
        argument = self._arguments.argument(kind, 1, Exactness.SAME, (function, kind))
        taken = self._scalars.turns.choose(self._dice, KINDS, (function, "by"))
        by = self._arguments.argument(taken, 1, Exactness.SAME, (function, "by", taken))
        if self._intervals and self._dice.random() < 0.3:
            by = self._intervals.duration()
        found = self._called(function, kind, argument)
        text = words("".join((str(found.text[0]), "{0}, {1})")))
        return replace(found, text=text, parts=(argument, by), wild=argument.wild)

    def filtered(self, call: Scalar) -> Scalar:
        """Return an aggregate, in its turn with FILTER."""
        if self._scalars.turns.choose(self._dice, range(5), "filter"):
            return call
        assert call.aggregate is not None
        parts = (*call.parts, self._scalars.condition(1))
        text = (*call.text, *words(f" FILTER (WHERE {{{len(call.parts)}}})"))
        return replace(call, text=text, parts=parts, aggregate=replace(call.aggregate, filtered=True))

    def _of(self, function: str, kind: FieldType) -> Scalar:
        dice = self._dice
        taken = kind
        if function in OF_NUMBERS and function != "sum":
            taken = self._scalars.turns.choose(dice, (INTEGER, REAL), function)
        elif function == "count":
            taken = self._scalars.turns.choose(dice, KINDS, function)
        argument = self._arguments.argument(taken, 1, Exactness.SAME, (function, taken))
        if argument.wild and (taken is REAL or function != "sum") and function in OF_NUMBERS:
            function = "max"  # sums of huge numbers depend on their order
            argument = self._scalars.value(kind, 0, Exactness.SAME)
        turn = self._scalars.turns.choose(dice, range(5), ("distinct", function))
        distinct = turn == 0 and function in DISTINCT_TOO
        return self._called(function, kind, argument, distinct=distinct)

    def _called(
        self, function: str, kind: FieldType, argument: Scalar, *, distinct: bool = False, stamp: str = ""
    ) -> Scalar:
        dice = self._dice
        name = self._scalars.turns.choose(dice, SPELLINGS.get(function, (function.upper(),)), "name")
        function = "quantile" if function in QUANTILES else function
        share = dice.choice((0.0, 0.25, 0.5, 0.95, 1.0)) if function in ("quantile", *PERCENTILES) else None
        written = "" if share is None else dice.choice((f"{share:g}", f"{share:.3f}"))
        quantifier = "DISTINCT " if distinct else "ALL " if function not in RANKED and dice.random() < 0.05 else ""
        text = words(f"{name}({quantifier}{{0}}{f', {written}' if written else ''})")
        separator, descending = "", False
        if function == "string_agg":
            text, separator, descending = self._joined(name, distinct=distinct)
        if function in PERCENTILES:
            text = words(f"{name}({written}) WITHIN GROUP (ORDER BY {{0}})")
        exactness = argument.exactness if kind in (INTEGER, REAL) else Exactness.EVEN
        if function in (*NOT_EXACT, "quantile", "percentile_cont"):
            exactness = Exactness.NEARLY
        elif function in AGGREGATE_ROWS:
            exactness = Exactness.SAME if argument.exactness is Exactness.EVEN else Exactness.NEARLY
        elif function == "sum" and kind is REAL:
            exactness = Exactness.EVEN if argument.exactness is Exactness.EVEN else Exactness.NEARLY
        elif function == "count":
            exactness = Exactness.EVEN
        kept = "null" if argument.type is None else argument.type.value
        label = f"{function.upper()}{' DISTINCT' if distinct else ''}({kept})"
        plain = argument.known.name if argument.known is not None and not argument.parentheses else ""
        default = "_".join([function, *(["distinct"] if distinct else []), *([plain] if plain else [])])
        return Scalar(
            kind, text, (), (argument,), label=label, exactness=exactness,
            wild=argument.wild and function != "count",
            aggregate=Aggregate(function, distinct, share, stamp, separator=separator, descending=descending),
            default=default[:64],
        )  # fmt: skip

    def _joined(self, name: str, *, distinct: bool) -> tuple[Words, str, bool]:
        """Return a call that joins texts, what stands between them, and whether the greatest comes first."""
        dice = self._dice
        separator = "," if name == "LISTAGG" and dice.random() < 0.3 else dice.choice((", ", "", "it's", "é-"))
        written = "" if separator == "," else f", {spelling.text(separator)}"
        start = f"{name}({'DISTINCT ' if distinct else ''}{{0}}{written}"
        direction = self._scalars.turns.choose(dice, ("", " ASC", " DESC"), "direction")
        way = self._scalars.turns.choose(dice, ("plain", "inside", "behind"), "order of texts")
        if way == "plain":
            return words(f"{start})"), separator, False
        order = f"ORDER BY {{0}}{direction}"
        text = f"{start} {order})" if way == "inside" else f"{start}) WITHIN GROUP ({order})"
        return words(text), separator, direction == " DESC"

    def _by_stamp(self, function: str, kind: FieldType) -> Scalar | None:
        stamped = [each for each in self._columns if each.stamp and each.type is kind]
        distinct = function in DISTINCT_TOO and self._dice.random() < 0.04
        if len(self._offered) == 1 and self._dice.random() < 0.1:
            stamps = [each.stamp for each in self._columns if each.stamp]
            return self._called(function, kind, self._scalars.literal(kind), stamp=stamps[0]) if stamps else None
        if not stamped:
            return None
        known = self._dice.choice(stamped)
        argument = column(self._dice, known, self._columns)
        if self._dice.random() < 0.5:
            own = [each for each in stamped if each.stamp == known.stamp]
            leaves: dict[FieldType, list[Leaf]] = {kind: [column_leaf(self._dice, each, self._columns) for each in own]}
            argument = Scalars(self._dice, leaves, self._scalars.turns).value(kind, 1, Exactness.SAME)
            if not _reads(argument, known.stamp):
                return None
        return self._called(function, kind, argument, stamp=known.stamp, distinct=distinct)

    def _error_bound(self) -> Scalar | None:
        dice = self._dice
        sampled = [each for each in self._columns if each.sampled and not each.wild]
        if not sampled:
            return None
        known = dice.choice(sampled)
        written = column(dice, known, self._columns, plain=True)
        argument = replace(written, text=(*written.text, f" WITHIN {dice.choice(('0.5', '5E-1'))}"))
        function = dice.choice(
            ("avg", "min", "max", "median", *QUANTILES, *PERCENTILES, "sum", "count", "first", "last")
        )
        called = self._called(function, REAL, argument, stamp=known.stamp if function in ("first", "last") else "")
        assert called.aggregate is not None
        return replace(
            called, text=("ERROR_BOUND(", *called.text, ")"), label=f"ERROR_BOUND({function})", wild=False,
            aggregate=replace(called.aggregate, error=ALLOWED_ERROR), exactness=Exactness.EVEN,
            default=f"error_bound_{called.default}"[:64],
        )  # fmt: skip

    def _counts_samples(self) -> bool:
        """Return whether there is one stream with a window that slides."""
        if not self._may_count or len(self._offered) != 1 or not isinstance(item := self._offered[0].item, Item):
            return False
        window = item.window
        whole = item.extent is None and isinstance(item.source, Stream)
        return whole and window is not None and window.kind == "RANGE" and window.slide > 1


def _quoting(scalar: Scalar) -> Scalar:
    """Return an expression with a quote more in the first text in it: another one, but for its quotes."""
    if scalar.type is FieldType.TEXT and not scalar.parts and str(scalar.text[0]).startswith("'"):
        quoted = f"'\"{str(scalar.text[0])[1:]}"
        return replace(scalar, text=(quoted,), sql=(quoted,))
    for place, part in enumerate(scalar.parts):
        if (other := _quoting(part)) != part:
            return replace(scalar, parts=(*scalar.parts[:place], other, *scalar.parts[place + 1 :]))
    return scalar


def _reads(scalar: Scalar, stamp: str) -> bool:
    own = scalar.known is not None and scalar.known.stamp == stamp
    return own or any(_reads(part, stamp) for part in scalar.parts)
