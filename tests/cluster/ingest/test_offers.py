"""Whether an offer fits is looked up for each batch: at any time it is what a comparison with the declaration gives."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cluster.ingest.offers import Declaration, Offers, check_offer
from protocols.wire.catalog import StreamOffer
from protocols.wire.frames import VERSION
from protocols.wire.streams import Field, FieldType, StreamSchema

PROXIES, STREAMS, KINDS = ("p", "q"), ("speeds", "Speeds"), (FieldType.REAL, FieldType.TEXT)
offers = st.tuples(st.just("put"), st.sampled_from(PROXIES), st.sampled_from(STREAMS), st.sampled_from(KINDS))
withdrawals = st.tuples(st.just("withdraw"), st.sampled_from(PROXIES), st.sampled_from(STREAMS), st.none())
declarations = st.tuples(
    st.just("declare"), st.none() | st.sampled_from(PROXIES), st.sampled_from(STREAMS), st.sampled_from(KINDS)
)
drops = st.tuples(st.just("forget"), st.none(), st.sampled_from(STREAMS), st.none())


def schema(stream: str, kind: FieldType) -> StreamSchema:
    return StreamSchema(stream, (Field("speed", kind),))


@given(st.lists(st.one_of(offers, withdrawals, declarations, drops), min_size=20, max_size=40))
def test_an_offer_fits_if_it_is_there_and_matches_what_is_declared(
    changes: list[tuple[str, str | None, str, FieldType | None]],
) -> None:
    subject, declared = Offers(), dict[str, Declaration]()
    offered: dict[tuple[str, str], StreamSchema] = {}
    for change, proxy, stream, kind in changes:
        match change, proxy, kind:
            case "put", str(), FieldType():
                subject.put(StreamOffer(VERSION, proxy, schema(stream, kind)))
                offered[proxy, stream] = schema(stream, kind)
            case "withdraw", str(), _:
                subject.withdraw(proxy, stream)
                offered.pop((proxy, stream), None)
            case "declare", _, FieldType():
                declaration = Declaration(schema(stream, kind), proxy)
                subject.declare(declaration)
                declared[stream.casefold()] = declaration
            case _:
                subject.forget(stream)
                declared.pop(stream.casefold(), None)
        for key in ((one, other) for one in PROXIES for other in STREAMS):
            of_key = declared.get(key[1].casefold())
            expected = key in offered and of_key is not None and check_offer(of_key, key[0], offered[key]).fits
            assert subject.fits(*key) == expected
