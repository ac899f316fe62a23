"""Aggregates whose partial is the list of all values, or of all different ones: quantiles, modes, texts, DISTINCT."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import msgspec
import polars as pl

from cluster.errors import PlanError
from cluster.fjord.partial_columns import Halves, PartialColumn, argument_of, argument_type, partial_name
from cluster.fjord.scaled_reals import (
    between_values,
    different,
    mean_of_integers,
    mean_of_reals,
    once,
    scaled,
    sum_of,
)
from cluster.operators.columns import AggregateCall
from cluster.scalars.texts import LONGEST_TEXT
from protocols.wire.streams import FieldType


def of_values(call: AggregateCall, final: Callable[[pl.Expr], pl.Expr]) -> Halves:
    """The partial of aggregates that need every value: a list of the values."""
    name = partial_name(call, "values")
    begun, merged = argument_of(call).drop_nulls(), pl.col(name).explode().drop_nulls()
    if call.distinct:
        # Merging keeps each value once, too: a pane grows with its values, not with its micro-batches.
        begun, merged = begun.unique(maintain_order=True), merged.unique(maintain_order=True)
    column = PartialColumn(name, pl.List(argument_type(call)), begun.implode().alias(name), merged.implode())
    return (column,), final(pl.col(name))


def median(call: AggregateCall) -> Halves:
    """The value in the middle, or the mean of the two in the middle."""
    return of_values(call, between_values(lambda values: values.list.median()))


def count_distinct(call: AggregateCall) -> Halves:
    """The number of different values."""
    return of_values(call, lambda values: values.list.n_unique())


def quantile(call: AggregateCall) -> Halves:
    """The value at a share of all values, between two of them if need be."""
    share = 0.5 if call.parameter is None else call.parameter
    return of_values(
        call,
        between_values(lambda values: values.list.agg(pl.element().quantile(share, interpolation="linear"))),
    )


def percentile(call: AggregateCall) -> Halves:
    """The least value up to which, itself included, at least the share of all values lies."""
    # A share is the decimal that was written: 0.55 of 100 values are 55, and not what the nearest real makes of it.
    share = Fraction(repr(0.5 if call.parameter is None else call.parameter))

    def places(counts: pl.Series) -> pl.Series:
        return pl.Series(counts.name, [max(math.ceil(share * count), 1) - 1 for count in counts], dtype=pl.Int64)

    def at_share(values: pl.Expr) -> pl.Expr:
        place = values.list.len().map_batches(places, return_dtype=pl.Int64, is_elementwise=True)
        return values.list.sort().list.get(place, null_on_oob=True)

    return of_values(call, at_share)


def mode(call: AggregateCall) -> Halves:
    """The most frequent value; of equally frequent ones the least."""
    return of_values(call, lambda values: values.list.eval(pl.element().mode().sort()).list.first())


def string_agg(call: AggregateCall) -> Halves:
    """All texts in their order, with a separator between them; NULL if there is none, and if the result is too long."""
    if call.joining is msgspec.UNSET:
        raise PlanError("STRING_AGG needs a separator")
    joining = call.joining

    def joined(values: pl.Expr) -> pl.Expr:
        letters = values.list.eval(pl.element().str.len_chars()).list.sum()
        letters = letters.cast(pl.Int64) + (values.list.len().cast(pl.Int64) - 1) * len(joining.separator)
        # A text that would be too long is never made.
        fitting = pl.when((values.list.len() > 0) & (letters <= LONGEST_TEXT)).then(values)
        return fitting.list.sort(descending=joining.descending).list.join(joining.separator)

    return of_values(call, joined)


def distinct_sum(call: AggregateCall) -> Halves:
    """The sum of the different values."""

    def total(values: pl.Expr) -> pl.Expr:
        plain = once(values).list.sum()
        found = plain if call.type is not FieldType.REAL else sum_of(plain, scaled(values).list.sum())
        return pl.when(values.list.len() > 0).then(found)

    return of_values(call, total)


def distinct_average(call: AggregateCall) -> Halves:
    """The mean of the different values."""

    def mean(values: pl.Expr) -> pl.Expr:
        sums = once(values).list.sum(), scaled(values).list.sum()
        count = different(values).list.len().cast(pl.Int64)
        mean_of_all = mean_of_integers if argument_type(call) is pl.Int64 else mean_of_reals
        return pl.when(values.list.len() > 0).then(mean_of_all(*sums, count))

    return of_values(call, mean)
