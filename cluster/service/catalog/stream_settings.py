"""What is set for streams: for each a value of its own, or the default of all."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Generic, TypeVar

import msgspec

from cluster.language.catalog import CatalogError

Setting = TypeVar("Setting", bound=msgspec.Struct)


class StreamSettings(Generic[Setting]):
    """One setting of all streams.

    Parameters
    ----------
    kind
        The class of its values.
    default
        For streams without a value of their own.
    stored
        The values of single streams, as JSON, by name of the stream.
    store
        Stores the value of a stream, as JSON; None removes it.
    """

    def __init__(
        self,
        kind: type[Setting],
        default: Setting,
        stored: Mapping[str, str],
        store: Callable[[str, str | None], None],
    ) -> None:
        self._default = default
        self._own = {name: msgspec.json.decode(text, type=kind) for name, text in stored.items()}
        self._store = store

    def of(self, stream: str) -> Setting:
        """Return the value for a stream."""
        return self._own.get(stream, self._default)

    def set(self, stream: str, value: Setting | None, known: Mapping[str, object]) -> None:
        """Set the value of a stream; None restores the default.

        Parameters
        ----------
        stream
            Its name.
        value
            The value.
        known
            The streams, by name.

        Raises
        ------
        CatalogError
            If there is no stream of this name that is stored.
        """
        if stream not in known:
            raise CatalogError(f"there is no stream {stream!r} that is stored", hint="`fjord stream list` has all")
        if value is None:
            self.forget(stream)
            return
        self._store(stream, msgspec.json.encode(value).decode())
        self._own[stream] = value

    def forget(self, stream: str) -> None:
        """Restore the default for a stream."""
        self._store(stream, None)
        self._own.pop(stream, None)
