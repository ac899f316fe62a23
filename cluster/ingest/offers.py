"""Which proxies offer which stream with which columns, and whether these match its declaration. Without any I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from protocols.errors import FrameError
from protocols.wire.catalog import StreamOffer
from protocols.wire.streams import FieldName, StreamSchema, match_columns

MOST_OFFERS = 65_536
"""Of all proxies; more are rejected."""

OfferKey = tuple[str, str]
"""A proxy, and a stream as the proxy calls it."""


@dataclass(frozen=True, slots=True)
class Declaration:
    """What every offer of a stream must match.

    Parameters
    ----------
    schema
        Its name and columns.
    only_proxy
        The one proxy that may feed it; None for any.
    """

    schema: StreamSchema
    only_proxy: str | None = None


@dataclass(frozen=True, slots=True)
class CheckedOffer:
    """A proxy's offer of a stream, checked against its declaration.

    Parameters
    ----------
    proxy
        Its name.
    stream
        As the proxy calls it.
    reasons
        Why it does not fit; empty if it does.
    ignored
        Columns that are offered and not declared; they are not stored.
    """

    proxy: str
    stream: str
    reasons: tuple[str, ...] = ()
    ignored: tuple[FieldName, ...] = ()

    @property
    def fits(self) -> bool:
        """Whether the proxy may feed the stream."""
        return not self.reasons

    @property
    def reason(self) -> str:
        """Why it does not fit, in one sentence."""
        return "; ".join(self.reasons)


class Offers:
    """What is declared, and what proxies offer now.

    Offers are kept whether they fit or not, and whether there is such a stream or not: declarations come and go.

    Parameters
    ----------
    most
        So many offers are kept.
    """

    def __init__(self, most: int = MOST_OFFERS) -> None:
        self._most = most
        self._declared: dict[str, Declaration] = {}
        self._offered: dict[str, dict[OfferKey, StreamSchema]] = {}
        self._count = 0
        self._mismatches: dict[OfferKey, str] = {}
        self._fitting: set[OfferKey] = set()
        """Offers of declared streams that fit: looked up for each batch."""

    @property
    def mismatches(self) -> Mapping[OfferKey, str]:
        """Why offers do not fit, for those that do not; a copy, so that any thread may call it."""
        return dict(self._mismatches)

    def declared(self, stream: str) -> Declaration | None:
        """Return the declaration of a stream, whatever the case of its name; None if there is none."""
        return self._declared.get(stream.casefold())

    def declare(self, declaration: Declaration) -> None:
        """Check offers against this declaration from now on."""
        name = declaration.schema.name.casefold()
        self._declared[name] = declaration
        for proxy, schema in self._of(name):
            self._note(check_offer(declaration, proxy, schema))

    def forget(self, stream: str) -> None:
        """Remove a declaration; offers stay, and may fit the next one of this name."""
        name = stream.casefold()
        self._declared.pop(name, None)
        for key in self._offered.get(name, {}):
            self._mismatches.pop(key, None)
            self._fitting.discard(key)

    def put(self, offer: StreamOffer) -> CheckedOffer | None:
        """Replace the proxy's last offer of the stream, and check the new one; return None if nothing is declared.

        Raises
        ------
        FrameError
            With reason ``full`` if there are too many.
        """
        name, key = offer.stream.name.casefold(), (offer.proxy, offer.stream.name)
        if key not in self._offered.get(name, {}):
            if self._count >= self._most:
                raise FrameError("full", f"proxies offer {self._most:,} streams already")
            self._count += 1
        self._offered.setdefault(name, {})[key] = offer.stream
        declaration = self._declared.get(name)
        if declaration is None:
            return None
        checked = check_offer(declaration, offer.proxy, offer.stream)
        self._note(checked)
        return checked

    def withdraw(self, proxy: str, stream: str) -> None:
        """Remove an offer, if there is one."""
        offers = self._offered.get(stream.casefold(), {})
        if offers.pop((proxy, stream), None) is not None:
            self._count -= 1
            self._mismatches.pop((proxy, stream), None)
            self._fitting.discard((proxy, stream))
            if not offers:
                del self._offered[stream.casefold()]

    def of(self, stream: str) -> tuple[CheckedOffer, ...]:
        """Return the offers of a declared stream, in the order of the proxies' names."""
        name = stream.casefold()
        declaration = self._declared[name]
        return tuple(check_offer(declaration, proxy, schema) for proxy, schema in self._of(name))

    def fits(self, proxy: str, stream: str) -> bool:
        """Return whether a proxy offers a stream as it is declared."""
        return (proxy, stream) in self._fitting

    def _of(self, name: str) -> list[tuple[str, StreamSchema]]:
        return [(proxy, schema) for (proxy, _), schema in sorted(self._offered.get(name, {}).items())]

    def _note(self, checked: CheckedOffer) -> None:
        key = checked.proxy, checked.stream
        if checked.fits:
            self._mismatches.pop(key, None)
            self._fitting.add(key)
        else:
            self._mismatches[key] = checked.reason
            self._fitting.discard(key)


def check_offer(declaration: Declaration, proxy: str, offered: StreamSchema) -> CheckedOffer:
    """Return a proxy's offer, checked against the declaration."""
    declared, stream = declaration.schema, offered.name
    if declaration.only_proxy not in {None, proxy}:
        return CheckedOffer(proxy, stream, (f"it was created to be fed by proxy {declaration.only_proxy} only",))
    if declared.name != stream:
        reason = f"it is declared as {declared.name} and offered as {stream}, and case counts in topics"
        return CheckedOffer(proxy, stream, (reason,))
    found = match_columns(declared, offered)
    return CheckedOffer(proxy, stream, found.reasons(), found.ignored)
