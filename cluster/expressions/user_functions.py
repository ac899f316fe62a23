"""Functions of users, as calls and plans name them: a module that is installed where queries run, and types."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from protocols.wire.streams import FieldType


class FunctionLanguage(StrEnum):
    """What a function is given and returns."""

    POLARS = "polars"
    ARROW = "arrow"


class UserFunction(msgspec.Struct, frozen=True):
    """A function of a user.

    Parameters
    ----------
    name
        Its name, as it was created.
    identity
        A name that no other function has, had or will have, not even one that is made anew under the same name.
    module, attribute
        Where it is: an import path, and a name in that module.
    parameters
        The types of its arguments, at least one.
    result
        The type of what it returns.
    strict
        True if it is called only with rows that have no NULL among their arguments; the others are NULL.
    language
        What it is given.
    names
        The names of its parameters, for messages; empty where one has none.
    """

    name: str
    identity: str
    module: str
    attribute: str
    parameters: tuple[FieldType, ...]
    result: FieldType
    strict: bool = False
    language: FunctionLanguage = FunctionLanguage.POLARS
    names: tuple[str, ...] = ()

    @property
    def path(self) -> str:
        """Where it is, as in CREATE FUNCTION.

        >>> UserFunction("f", "f@1", "roads.wear", "score", (FieldType.REAL,), FieldType.REAL).path
        'roads.wear:score'
        """
        return f"{self.module}:{self.attribute}"

    @property
    def shape(self) -> str:
        """How a call of it is written.

        >>> UserFunction("f", "f@1", "m", "f", (FieldType.REAL, FieldType.TEXT), FieldType.REAL, names=("x", "")).shape
        'f(x REAL, TEXT)'
        """
        names = self.names or ("",) * len(self.parameters)
        words = (f"{name} {kind.value.upper()}".strip() for name, kind in zip(names, self.parameters, strict=True))
        return f"{self.name}({', '.join(words)})"
