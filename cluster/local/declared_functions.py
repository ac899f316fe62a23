"""Functions of users for queries in this process: the statements that create them, checked as a cluster checks them."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from cluster.errors import ClusterError
from cluster.expressions.user_functions import UserFunction
from cluster.functions.allowed import FunctionRules
from cluster.functions.calling import check_function
from cluster.functions.process import UserFunctionError
from cluster.language.declarations import CreateFunction
from cluster.language.errors import FjordSqlError
from cluster.language.translation import parse_statement


def declared_functions(statements: Iterable[str], rules: FunctionRules) -> tuple[UserFunction, ...]:
    """Return the functions that some statements create.

    Parameters
    ----------
    statements
        CREATE FUNCTION, each.
    rules
        Which functions are allowed.

    Raises
    ------
    FjordSqlError
        If one is another statement, or its function is not allowed or cannot be imported.
    ClusterError
        If two have one name.
    """
    found: dict[str, UserFunction] = {}
    for number, text in enumerate(statements, 1):
        statement = declared_function(text)
        function = replace(statement.function, identity=f"{statement.name}@{number}")
        if function.name.casefold() in found:
            raise ClusterError(f"there are two functions {function.name!r}", hint="a function has one list of types")
        try:
            check_function(function, rules)
        except UserFunctionError as error:
            raise statement.path_error(error.message) from None
        found[function.name.casefold()] = function
    return tuple(found.values())


def declared_function(text: str) -> CreateFunction:
    """Return a CREATE FUNCTION.

    Raises
    ------
    FjordSqlError
        If it is another statement, or faulty.
    """
    statement = parse_statement(text)
    if not isinstance(statement, CreateFunction):
        raise FjordSqlError("CREATE FUNCTION was expected here", text=text, start=0, end=len(text))
    return statement
