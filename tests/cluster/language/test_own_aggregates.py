"""An aggregate that sqlglot does not know has a class in syntax trees that follows from its row."""

from __future__ import annotations

from sqlglot import exp

from cluster.language.functions import class_of
from cluster.operators.aggregate_functions import AggregateFunction
from cluster.scalars.scalar_function import Family
from protocols.wire.streams import FieldType


def test_its_class_has_its_names_and_one_argument() -> None:
    kind = class_of(AggregateFunction("value_range", Family.NUMBER, FieldType.REAL, names=("VALUE_RANGE", "RANGE_OF")))
    assert issubclass(kind, exp.AggFunc)
    assert (kind.sql_names(), kind.arg_types) == (["VALUE_RANGE", "RANGE_OF"], {"this": True})
    tree = kind.from_arg_list([exp.column("speed")])
    assert tree.sql() == "VALUE_RANGE(speed)"
    assert tree.error_messages() == []
    assert kind.from_arg_list([exp.column("speed"), exp.column("lane")]).error_messages([1, 2]) != []
