"""The events of NEXMark: people register, open auctions, and bid; a file for each of the three, in a folder.

Of fifty events one is a person, three are auctions and forty-six bids. Sellers, bidders and what is bid on have the
skew of the generator of nexmark/nexmark: half of the bids go to one of a hundred recent auctions, three in four bids
come from one of a hundred people, three in four auctions are opened by one of a hundred. Drawn by NumPy from a seed, so
the events are not those of that generator, but as many of each kind, with the same ids at the same places.

    python examples/nexmark/generate.py FOLDER [--events 100000] [--rate 1000] [--seed 1]
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Annotated

import numpy as np
import polars as pl
import typer

BEGIN_US = int(datetime.fromisoformat("2015-07-14T23:59:30+00:00").timestamp()) * 1_000_000
"""Half a minute before midnight, so that reports by day have two days."""
PEOPLE, AUCTIONS, ALL = 1, 3, 50
"""Events of each kind among fifty; the others are bids."""
FIRST_ID = 1_000
FIRST_CATEGORY, CATEGORIES = 10, 5
HOT = 100
"""One of so many recent people or auctions is hot."""
ACTIVE_PEOPLE, AUCTIONS_IN_FLIGHT, LEAD = 1_000, 100, 10
CHANNELS = 10_000
STATES = ("AZ", "CA", "ID", "OR", "WA", "WY")
CITIES = (
    "Phoenix",
    "Los Angeles",
    "San Francisco",
    "Boise",
    "Portland",
    "Bend",
    "Redmond",
    "Seattle",
    "Kent",
    "Cheyenne",
)
FIRST_NAMES = ("Peter", "Paul", "Luke", "John", "Saul", "Vicky", "Kate", "Julie", "Sarah", "Deiter", "Walter")
LAST_NAMES = ("Shultz", "Abrams", "Spencer", "White", "Bartels", "Walton", "Smith", "Jones", "Noris")
HOT_CHANNELS = ("Google", "Facebook", "Baidu", "Apple")

Integers = np.ndarray[tuple[int], np.dtype[np.int64]]


@dataclass(frozen=True, slots=True)
class Events:
    """The three streams; instants are integers, microseconds since 1970, and unique.

    Parameters
    ----------
    person
        id, name, email, credit_card, city, state, extra; date_time.
    auction
        id, item, description, initial_bid, reserve, expires, seller, category, extra; date_time.
    bid
        auction, bidder, price, channel, url, extra; date_time.
    """

    person: pl.DataFrame
    auction: pl.DataFrame
    bid: pl.DataFrame

    @property
    def streams(self) -> dict[str, pl.DataFrame]:
        """By the name of the stream."""
        return {"person": self.person, "auction": self.auction, "bid": self.bid}


def events(count: int, *, rate: int = 1_000, seed: int = 1) -> Events:
    """Return the first events.

    Parameters
    ----------
    count
        How many, of all kinds.
    rate
        Events in a second of their own time, at most a million.
    seed
        The same events for the same seed, count and rate.
    """
    number = np.arange(count, dtype=np.int64)
    place = number % ALL
    stamps = BEGIN_US + number * 1_000_000 // rate
    is_person, is_auction = place < PEOPLE, (place >= PEOPLE) & (place < PEOPLE + AUCTIONS)
    is_bid = ~is_person & ~is_auction
    dice = np.random.default_rng(seed)
    return Events(
        _people(dice, number[is_person], stamps[is_person]),
        _auctions(dice, number[is_auction], stamps[is_auction], rate),
        _bids(dice, number[is_bid], stamps[is_bid]),
    )


def _people(dice: np.random.Generator, number: Integers, stamps: Integers) -> pl.DataFrame:
    count = len(number)
    first, last = _chosen(dice, FIRST_NAMES, count), _chosen(dice, LAST_NAMES, count)
    user, domain = _words(dice, count, 7), _words(dice, count, 5)
    return pl.DataFrame(
        {
            "id": _last_person(number) + FIRST_ID,
            "name": [f"{one} {two}" for one, two in zip(first, last, strict=True)],
            "email": [f"{one}@{two}.com" for one, two in zip(user, domain, strict=True)],
            "credit_card": [
                "".join(f" {four:04}" for four in card)[1:] for card in dice.integers(0, 10_000, (count, 4))
            ],
            "city": _chosen(dice, CITIES, count),
            "state": _chosen(dice, STATES, count),
            "extra": _words(dice, count, 60),
            "date_time": stamps,
        },
        schema_overrides=dict.fromkeys(("name", "email", "credit_card", "city", "state", "extra"), pl.String),
    )


def _auctions(dice: np.random.Generator, number: Integers, stamps: Integers, rate: int) -> pl.DataFrame:
    count = len(number)
    hot = dice.integers(0, 4, count) > 0
    seller = np.where(hot, _last_person(number) // HOT * HOT, _some_person(dice, number))
    initial = _prices(dice, count)
    until_enough_us = AUCTIONS_IN_FLIGHT * ALL // AUCTIONS * 1_000_000 // rate
    return pl.DataFrame(
        {
            "id": _last_auction(number) + FIRST_ID,
            "item": _words(dice, count, 20),
            "description": _words(dice, count, 100),
            "initial_bid": initial,
            "reserve": initial + _prices(dice, count),
            "expires": stamps + 1_000 * (1 + dice.integers(0, max(2 * until_enough_us // 1_000, 1), count)),
            "seller": seller + FIRST_ID,
            "category": FIRST_CATEGORY + dice.integers(0, CATEGORIES, count),
            "extra": _words(dice, count, 250),
            "date_time": stamps,
        },
        schema_overrides=dict.fromkeys(("item", "description", "extra"), pl.String),
    )


def _bids(dice: np.random.Generator, number: Integers, stamps: Integers) -> pl.DataFrame:
    count = len(number)
    last = _last_auction(number)
    first = np.maximum(last - AUCTIONS_IN_FLIGHT, 0)
    auction = np.where(dice.integers(0, 2, count) > 0, last // HOT * HOT, dice.integers(first, last + 1 + LEAD))
    hot_bidder = dice.integers(0, 4, count) > 0
    bidder = np.where(hot_bidder, _last_person(number) // HOT * HOT + 1, _some_person(dice, number))
    addresses = _addresses(dice, len(HOT_CHANNELS) + CHANNELS)
    names = [*HOT_CHANNELS, *(f"channel-{channel}" for channel in range(CHANNELS))]
    for channel in range(len(HOT_CHANNELS), len(names)):
        if dice.integers(0, 10) > 0:
            addresses[channel] += f"&channel_id={int(dice.integers(0, 2**31))}"
    channel = np.where(
        dice.integers(0, 2, count) > 0,
        dice.integers(0, len(HOT_CHANNELS), count),
        len(HOT_CHANNELS) + dice.integers(0, CHANNELS, count),
    )
    return pl.DataFrame(
        {
            "auction": auction + FIRST_ID,
            "bidder": bidder + FIRST_ID,
            "price": _prices(dice, count),
            "channel": pl.Series(names).gather(channel),
            "url": pl.Series(addresses).gather(channel),
            "extra": _words(dice, count, 60),
            "date_time": stamps,
        },
        schema_overrides={"extra": pl.String},
    )


def _last_person(number: Integers) -> Integers:
    """Return the newest person at each event, counted from 0."""
    return number // ALL


def _last_auction(number: Integers) -> Integers:
    """Return the newest auction at each event that is no person, counted from 0."""
    return number // ALL * AUCTIONS + np.minimum(number % ALL - PEOPLE, AUCTIONS - 1)


def _some_person(dice: np.random.Generator, number: Integers) -> Integers:
    """Return active people, or a few that have not registered yet."""
    people = _last_person(number) + 1
    active = np.minimum(people, ACTIVE_PEOPLE)
    return people - active + dice.integers(0, active + LEAD)


def _prices(dice: np.random.Generator, count: int) -> Integers:
    return np.round(10 ** (dice.uniform(0, 6, count)) * 100).astype(np.int64)


def _addresses(dice: np.random.Generator, count: int) -> list[str]:
    parts = [_words(dice, count, 5) for _ in range(3)]
    return [f"https://www.nexmark.com/{a}/{b}/{c}/item.htm?query=1" for a, b, c in zip(*parts, strict=True)]


def _chosen(dice: np.random.Generator, values: Sequence[str], count: int) -> list[str]:
    return [values[place] for place in dice.integers(0, len(values), count)]


def _words(dice: np.random.Generator, count: int, letters: int) -> list[str]:
    drawn = dice.integers(ord("a"), ord("z") + 1, count * letters, dtype=np.uint8).tobytes().decode("ascii")
    return [drawn[place : place + letters] for place in range(0, count * letters, letters)]


def main(
    folder: Annotated[Path, typer.Argument(help="Gets person.parquet, auction.parquet and bid.parquet.")],
    count: Annotated[int, typer.Option("--events", min=1, help="Events of all kinds.")] = 100_000,
    rate: Annotated[int, typer.Option(min=1, max=1_000_000, help="Events in a second of their own time.")] = 1_000,
    seed: Annotated[int, typer.Option(help="The same events for the same seed.")] = 1,
) -> None:
    """Write NEXMark's events as Parquet files, for `fjord query try --time-column date_time`."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, rows in events(count, rate=rate, seed=seed).streams.items():
        instant = pl.from_epoch("date_time", time_unit="us").dt.replace_time_zone("UTC")
        rows.with_columns(instant).write_parquet(folder / f"{name}.parquet")
        print(f"{folder / name}.parquet: {rows.height:,} events")


if __name__ == "__main__":
    typer.run(main)
