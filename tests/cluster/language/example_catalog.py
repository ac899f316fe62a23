"""The streams that examples in tests are about: traffic sensors, and the auctions of NEXMark."""

from __future__ import annotations

from cluster.language.catalog import BaseStream, Catalog
from protocols.wire.streams import Field, FieldType, StreamSchema

TRAFFIC = StreamSchema(
    "traffic",
    (
        Field("sensor", FieldType.TEXT, fixed=True),
        Field("lane", FieldType.INTEGER),
        Field("speed", FieldType.REAL, "mph"),
        Field("flow", FieldType.REAL, "vehicles/h"),
        Field("open", FieldType.BOOLEAN),
    ),
)
WEATHER = StreamSchema(
    "weather",
    (
        Field("sensor", FieldType.TEXT, fixed=True),
        Field("temperature", FieldType.REAL, "degC"),
        Field("wind", FieldType.REAL, "km/h"),
    ),
)
OPEN_AUCTION = StreamSchema(
    "OpenAuction",
    (
        Field("itemID", FieldType.INTEGER),
        Field("sellerID", FieldType.INTEGER),
        Field("start_price", FieldType.REAL),
    ),
)
CLOSED_AUCTION = StreamSchema("ClosedAuction", (Field("itemID", FieldType.INTEGER),))
BID = StreamSchema(
    "Bid",
    (Field("itemID", FieldType.INTEGER), Field("bid_price", FieldType.REAL), Field("bidderID", FieldType.INTEGER)),
)
PERSON = StreamSchema("Person", (Field("id", FieldType.INTEGER), Field("name", FieldType.TEXT)))

CATALOG = Catalog.of(
    [TRAFFIC, WEATHER, BaseStream(OPEN_AUCTION, stamp="ts"), CLOSED_AUCTION, BID, PERSON],
)
