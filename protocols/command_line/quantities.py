"""How people write durations and sizes, as types of settings: ``Annotated[int, Duration(most_us=...)]``."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from protocols.errors import FjordError
from protocols.text.byte_sizes import exact_byte_size, parse_byte_size
from protocols.text.durations import LONGEST_OPTION_US, format_duration, parse_duration_between

if TYPE_CHECKING:
    from pydantic import GetCoreSchemaHandler
    from pydantic_core import CoreSchema


@dataclass(frozen=True, slots=True)
class Quantity(ABC):
    """A whole number that people write with a unit."""

    metavar: ClassVar[str]
    """What stands for it in the help."""

    @abstractmethod
    def parse(self, text: str) -> int:
        """Return what a text means."""

    @abstractmethod
    def write(self, value: int) -> str:
        """Return a text that means a value."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Let a field of a pydantic model be written like this."""
        from pydantic_core import PydanticCustomError, core_schema

        def read(value: object) -> object:
            try:
                return self.parse(value) if isinstance(value, str) else value
            except FjordError as error:
                raise PydanticCustomError("quantity", "{problem}", {"problem": str(error)}) from error

        return core_schema.no_info_before_validator_function(read, handler(source))


@dataclass(frozen=True, slots=True)
class Duration(Quantity):
    """Microseconds, written as ``30s``.

    Parameters
    ----------
    least_us, most_us
        The shortest and the longest that is accepted.
    """

    metavar: ClassVar[str] = "DURATION"
    least_us: int = 0
    most_us: int = LONGEST_OPTION_US

    def parse(self, text: str) -> int:
        """Return the microseconds that a text means.

        Raises
        ------
        DurationError
            If it is no duration, or one that is not accepted.

        >>> Duration().parse("2s")
        2000000
        """
        return parse_duration_between(text, self.least_us, self.most_us)

    def write(self, value: int) -> str:
        """Return it with the unit that fits."""
        return format_duration(value)


@dataclass(frozen=True, slots=True)
class ByteSize(Quantity):
    """Bytes, written as ``64KiB``."""

    metavar: ClassVar[str] = "SIZE"

    def parse(self, text: str) -> int:
        """Return the bytes that a text means; a text that means none is an error of `parse_byte_size`."""
        return parse_byte_size(text)

    def write(self, value: int) -> str:
        """Return it with the largest unit of which it is a multiple."""
        return exact_byte_size(value)
