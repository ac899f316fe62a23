"""CREATE FUNCTION and DROP FUNCTION: their contents, checked without importing the module."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sqlglot import exp
from sqlglot.errors import SqlglotError

from cluster.expressions.user_functions import FunctionLanguage, UserFunction
from cluster.language.dialect import parse_scalar
from cluster.language.errors import FjordSqlError, suggest
from cluster.language.foreign_functions import INSTEAD, KEEP_ALL
from cluster.language.functions import AGGREGATE_NAMES, FUNCTION_NAMES
from cluster.language.spelling import CANONICAL_NAMES
from cluster.language.syntax import place_of
from cluster.language.type_words import column_type, written_type
from cluster.language.words import LANGUAGE
from protocols.wire.streams import RESERVED_PREFIX, FieldType

if TYPE_CHECKING:
    from cluster.language.context import Context
    from cluster.language.syntax import CreateFunctionStatement

MOST_PARAMETERS = 32
LONGEST_PATH = 200
_PATH = re.compile(r"(?P<module>[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*):(?P<attribute>[A-Za-z]\w*)", re.ASCII)
PATH_SHAPE = "AS 'package.module:function'"


@dataclass(frozen=True, slots=True)
class CreateFunction:
    """``CREATE FUNCTION name (types) RETURNS type [LANGUAGE l] [STRICT] AS 'package.module:function'``.

    Parameters
    ----------
    text
        The statement.
    function
        What it creates, without an identity.
    """

    text: str
    function: UserFunction
    _path_span: tuple[int, int] = field(default=(0, 0), repr=False, compare=False)

    @property
    def name(self) -> str:
        """Name of the function."""
        return self.function.name

    def path_error(self, reason: str, hint: str | None = None) -> FjordSqlError:
        """Return an error about where the function is."""
        start, end = self._path_span
        return FjordSqlError(reason, text=self.text, start=start, end=end, hint=hint)


@dataclass(frozen=True, slots=True)
class DropFunction:
    """``DROP FUNCTION name``."""

    text: str
    name: str


def create_function(tree: CreateFunctionStatement, context: Context) -> CreateFunction:
    """Return the contents of the statement.

    Parameters
    ----------
    tree
        Its syntax; that the name is one has been checked.
    context
        For errors.

    Raises
    ------
    FjordSqlError
        If the name is that of something built in, a type is unknown, or there are no arguments or too many.
    """
    name = tree.this.name
    if (reason := name_in_use(name)) is not None and not context.registered:
        raise context.error(tree.this, reason, "choose another name")
    if not tree.expressions:
        reason = "a function takes at least one argument"
        raise context.error(tree.this, reason, "one that takes none gives the same for every tuple: write the value")
    if len(tree.expressions) > MOST_PARAMETERS:
        raise context.error(tree.this, f"a function takes at most {MOST_PARAMETERS} arguments")
    names: list[str] = []
    types: list[FieldType] = []
    for parameter in tree.expressions:
        known = parameter.this.name if parameter.this is not None else ""
        if known and known.casefold() in {each.casefold() for each in names}:
            raise context.error(parameter.this, f"there are two arguments {known!r}")
        names.append(known)
        types.append(_type(parameter.args["kind"], context))
    module, attribute = _path(tree, context)
    function = UserFunction(
        name,
        "",
        module,
        attribute,
        tuple(types),
        _type(tree.args["returns"], context),
        tree.args.get("nulls") in ("STRICT", "RETURNS"),
        _language(tree, context),
        tuple(names) if any(names) else (),
    )
    return CreateFunction(context.text, function, place_of(tree.args["path"]))


def name_in_use(name: str) -> str | None:
    """Return why a function cannot have a name: something built in has it; None if it can.

    >>> name_in_use("round"), name_in_use("interval"), name_in_use("wear")
    ('ROUND is built in', 'INTERVAL means something in SQL', None)
    """
    word = name.upper()
    if word in CANONICAL_NAMES or word in FUNCTION_NAMES or word in AGGREGATE_NAMES:
        return f"{word} is built in"
    if word in INSTEAD or word in KEEP_ALL or word in LANGUAGE:
        return f"{word} means something in SQL"
    if name.casefold().startswith(RESERVED_PREFIX):
        return f"names that begin with {RESERVED_PREFIX!r} are Fjord's own"
    try:
        plain = type(parse_scalar(f"{name}(x)")) is exp.Anonymous
    except (FjordSqlError, SqlglotError, TypeError):
        plain = False
    return None if plain else f"{word} means something in SQL"


def _type(kind: exp.Expr, context: Context) -> FieldType:
    """Return a type of an argument or a result."""
    if written_type(kind.name) == "TIMESTAMP":
        raise context.error(kind, "functions are not given timestamps", "types are boolean, integer, real and text")
    return column_type(kind, context)


def _path(tree: CreateFunctionStatement, context: Context) -> tuple[str, str]:
    written = tree.args["path"]
    found = _PATH.fullmatch(written.this)
    if found is None or len(written.this) > LONGEST_PATH:
        reason = "this is no path of a function: a module, a colon and a name in it were expected"
        raise context.error(written, reason, f"it is written {PATH_SHAPE}; the text of a function is not sent")
    return found["module"], found["attribute"]


def _language(tree: CreateFunctionStatement, context: Context) -> FunctionLanguage:
    written = tree.args.get("language")
    if written is None:
        return FunctionLanguage.POLARS
    known = [each.value.upper() for each in FunctionLanguage]
    if written.name.upper() not in known:
        hint = suggest(written.name, known, what="functions are given series of")
        raise context.error(written, f"there is no language {written.name!r}", hint)
    return FunctionLanguage(written.name.lower())
