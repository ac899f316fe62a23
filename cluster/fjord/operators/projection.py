"""Project: tuples mapped to new ones (papers/pipes_algebra.md section 3, map)."""

from __future__ import annotations

from typing import final

import polars as pl

from cluster.expressions.nodes import Column
from cluster.fjord.batch import END, START, Batch
from cluster.fjord.operator import Operator
from cluster.fjord.operators.origins import with_origins
from cluster.fjord.running_kind import Alone, KeepsNothing, PassesNoOrigins, PassesRows, RuntimeContext
from cluster.fjord.scalars import compile_scalar
from cluster.operators.columns import ORIGIN, STAMP, Output, Scalar, Schema
from cluster.operators.scalar_expressions import passed_on
from cluster.physical import operations as kinds


class Project(Operator):
    """Stateless; duplicates stay.

    Parameters
    ----------
    outputs
        Names and expressions of the new columns.
    """

    def __init__(self, outputs: tuple[Output, ...]) -> None:
        self._columns = [compile_scalar(output.scalar).alias(output.name) for output in outputs]

    @classmethod
    def columns_of(cls, schema: Schema) -> Project:
        """Return the projection of a stream on these columns, unchanged; the stamp is where the interval begins."""
        read = {STAMP: START}
        outputs = (Output(column.name, Scalar(Column(read.get(column, column.name)), column.type)) for column in schema)
        return cls(tuple(outputs))

    def transition(self, port: int, batch: Batch) -> Batch:
        """Compute the new columns; the interval stays."""
        del port
        interval = [pl.col(START), pl.col(END)]
        # Beside the interval a constant becomes as long as the batch.
        return Batch(batch.rows.select([*interval, *self._columns]), batch.watermark_us)


class PieceProject(Operator):
    """A projection that passes on origins. Stateless.

    Parameters
    ----------
    outputs
        Names and expressions of the other columns.
    """

    def __init__(self, outputs: tuple[Output, ...]) -> None:
        self._inner = Project((*outputs, *passed_on([ORIGIN])))

    def transition(self, port: int, batch: Batch) -> Batch:
        """Compute the columns; interval and origin stay."""
        return self._inner.transition(port, Batch(with_origins(batch.rows), batch.watermark_us))


@final
class RunningColumns(PassesRows, KeepsNothing, PassesNoOrigins, Alone[kinds.Columns]):
    """The columns that a pipeline reads."""

    def operator(self, operation: kinds.Columns) -> Operator:
        """Return the operator."""
        return Project.columns_of(operation.columns)


@final
class RunningProject(PassesRows, KeepsNothing, Alone[kinds.Project]):
    """A projection."""

    def operator(self, operation: kinds.Project) -> Operator:
        """Return the operator."""
        return Project(operation.outputs)

    def with_origins(self, operation: kinds.Project, context: RuntimeContext) -> Operator:
        """Return one that passes on origins, too."""
        del context
        return PieceProject(operation.outputs)
