"""Which proxies offer which stream with which columns, and whether these are the ones declared. Without any I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from protocols.errors import FrameError
from protocols.wire.catalog import StreamOffer
from protocols.wire.column_matching import match_columns
from protocols.wire.streams import FieldName, StreamSchema

MOST_OFFERS = 65_536
"""Of all proxies; more are refused."""

OfferKey = tuple[str, str]
"""A proxy, and a stream as the proxy calls it."""


@dataclass(frozen=True, slots=True)
class Declaration:
    """What every offer of a stream must agree with.

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
class JudgedOffer:
    """A proxy's offer of a stream, against its declaration.

    Parameters
    ----------
    proxy
        Whose.
    stream
        As the proxy calls it.
    reasons
        Why it does not fit; empty if it does.
    ignored
        Columns that are offered and not declared: they are not stored.
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

    Offers are remembered whether they fit or not, and whether there is such a stream or not: declarations come and go.

    Parameters
    ----------
    most
        So many offers are remembered.
    """

    def __init__(self, most: int = MOST_OFFERS) -> None:
        self._most = most
        self._declared: dict[str, Declaration] = {}
        self._offered: dict[str, dict[OfferKey, StreamSchema]] = {}
        self._count = 0
        self._mismatches: dict[OfferKey, str] = {}

    @property
    def mismatches(self) -> Mapping[OfferKey, str]:
        """Why offers do not fit, for those that do not; a copy, so that any thread may ask."""
        return dict(self._mismatches)

    def declared(self, stream: str) -> Declaration | None:
        """Return the declaration of a stream, whose name has no case here; None if there is none."""
        return self._declared.get(stream.casefold())

    def declare(self, declaration: Declaration) -> None:
        """Judge offers by this from now on."""
        name = declaration.schema.name.casefold()
        self._declared[name] = declaration
        for proxy, schema in self._of(name):
            self._note(judge(declaration, proxy, schema))

    def forget(self, stream: str) -> None:
        """Forget a declaration; what was offered may fit the next one of this name."""
        name = stream.casefold()
        self._declared.pop(name, None)
        for key in self._offered.get(name, {}):
            self._mismatches.pop(key, None)

    def put(self, offer: StreamOffer) -> JudgedOffer | None:
        """Remember an offer in place of the proxy's last one of the stream, and judge it; None if nothing is declared.

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
        judged = judge(declaration, offer.proxy, offer.stream)
        self._note(judged)
        return judged

    def withdraw(self, proxy: str, stream: str) -> None:
        """Forget an offer, if there is one."""
        offers = self._offered.get(stream.casefold(), {})
        if offers.pop((proxy, stream), None) is not None:
            self._count -= 1
            self._mismatches.pop((proxy, stream), None)
            if not offers:
                del self._offered[stream.casefold()]

    def of(self, stream: str) -> tuple[JudgedOffer, ...]:
        """Return what is offered of a declared stream, by the names of the proxies."""
        name = stream.casefold()
        declaration = self._declared[name]
        return tuple(judge(declaration, proxy, schema) for proxy, schema in self._of(name))

    def fits(self, proxy: str, stream: str) -> bool:
        """Return whether a proxy offers a stream as it is declared."""
        there = (proxy, stream) in self._offered.get(stream.casefold(), {})
        return there and stream.casefold() in self._declared and (proxy, stream) not in self._mismatches

    def _of(self, name: str) -> list[tuple[str, StreamSchema]]:
        return [(proxy, schema) for (proxy, _), schema in sorted(self._offered.get(name, {}).items())]

    def _note(self, judged: JudgedOffer) -> None:
        if judged.fits:
            self._mismatches.pop((judged.proxy, judged.stream), None)
        else:
            self._mismatches[judged.proxy, judged.stream] = judged.reason


def judge(declaration: Declaration, proxy: str, offered: StreamSchema) -> JudgedOffer:
    """Return what is to be said of a proxy's offer."""
    declared, stream = declaration.schema, offered.name
    if declaration.only_proxy not in {None, proxy}:
        return JudgedOffer(proxy, stream, (f"it was created to be fed by proxy {declaration.only_proxy} only",))
    if declared.name != stream:
        reason = f"it is declared as {declared.name} and offered as {stream}, and topics do not leave case open"
        return JudgedOffer(proxy, stream, (reason,))
    found = match_columns(declared, offered)
    return JudgedOffer(proxy, stream, found.reasons(), found.ignored)
