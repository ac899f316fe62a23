"""Options of a command that are the settings of a pydantic model (:mod:`protocols.command_line.settings_file`)."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar, get_args, get_origin

import typer
from annotated_types import Ge, Le

from protocols.command_line.options import option_parser
from protocols.command_line.settings_file import Program, option_name, quantity, shown, written

if TYPE_CHECKING:
    from pydantic import BaseModel
    from pydantic.fields import FieldInfo

Command = TypeVar("Command", bound=Callable[..., None])


def with_options(model: type[BaseModel], program: Program) -> Callable[[Command], Command]:
    """Give a command an option, and its environment variable, for every setting of a model.

    The command gets their values as ``**settings``: None where nothing is given.
    """

    def decorated(command: Command) -> Command:
        own = inspect.signature(command, eval_str=True)
        named = [each for each in own.parameters.values() if each.kind is not inspect.Parameter.VAR_KEYWORD]
        made = [_option(name, field, program) for name, field in model.model_fields.items()]
        command.__signature__ = own.replace(parameters=[*made, *named])  # type: ignore[attr-defined]
        return command

    return decorated


def _option(name: str, field: FieldInfo, program: Program) -> inspect.Parameter:
    kind, several = _kind(field.annotation)
    looks, unit = shown(field), quantity(field)
    details: dict[str, Any] = {
        "help": f"{str(field.description).removesuffix('.')}; repeatable." if several else field.description,
        "envvar": program.variable(name, field),
        "show_default": looks.unset or written(field.default, field) or False,
    }
    if looks.metavar:
        details |= {"metavar": looks.metavar, "dir_okay": looks.metavar != "FILE"}
    if unit is not None:
        details |= {"metavar": unit.metavar, "parser": option_parser(unit.parse)}
    elif kind in (int, float):
        details |= {"min": _bound(field, Ge, "ge"), "max": _bound(field, Le, "le")}
    return inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,
        default=None,
        annotation=Annotated[
            (list[kind] if several else kind) | None,  # type: ignore[valid-type]
            typer.Option(option_name(name), *looks.aliases, **details),
        ],
    )


def _kind(annotation: Any) -> tuple[Any, bool]:
    """Return the type of a setting or of its elements, and whether it has several."""
    if get_origin(annotation) is Annotated:
        return _kind(get_args(annotation)[0])
    if get_origin(annotation) is Literal:
        return annotation, False
    parts = [each for each in get_args(annotation) if each not in (type(None), ...)]
    several = get_origin(annotation) is tuple
    return (_kind(parts[0])[0], several) if parts else (annotation, False)


def _bound(field: FieldInfo, kind: type[Ge | Le], name: str) -> Any:
    """Return the least or the most that a number may be; None if that is not bounded."""
    return next((getattr(each, name) for each in field.metadata if isinstance(each, kind)), None)
