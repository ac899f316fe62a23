"""The types of a CSV file are those that Polars infers from all rows at once, however it is cut into pieces."""

from __future__ import annotations

import io
import random
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.relations.frames import _pieces, scanned, types_in

POOLS = (
    ("1", "-7", "0", "007", "+5"),
    ("1.5", "-2e5", ".5", "3.", "NaN", "inf", "1e400"),
    ("true", "false", "True"),
    ("2012-03-01", "1999-12-31"),
    ("2012-03-01 10:00:00", "2012-03-01T10:00:00", "2012-03-01T10:00:00.123456"),
    ("2012-03-01T10:00:00Z",),
    ("01/02/2012", "31/12/1999"),
    ("10:00:00", "23:59"),
    ("abc", "x y", " 1", "1 ", '"q"', '"two\nlines"', '"a ""b"" c"', '"a,b"', '""', "ö"),
    ("",),
    ("99999999999999999999", "9223372036854775807", "9223372036854775808"),
)
"""Values of one type each, as they are written."""
FILES = 60


def content(dice: random.Random) -> bytes:
    """Return a file whose columns have values of one type, or of a few."""
    pools = [dice.sample(POOLS, dice.choice((1, 1, 1, 2, 3))) for _ in range(dice.randint(1, 4))]
    names = [dice.choice(("a", '"q ""x"""', f"c{place}", f"c{place}")) for place in range(len(pools))]
    rows = [[dice.choice(dice.choice(pool)) for pool in pools] for _ in range(dice.randint(0, 25))]
    ending = dice.choice(("\n", "\n", "\r\n"))
    return (ending.join(map(",".join, [names, *rows])) + dice.choice(("", ending))).encode()


def attempt(found: pl.LazyFrame) -> pl.DataFrame | str:
    """Return all rows, or the kind of error."""
    try:
        return found.collect()
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        return type(error).__name__


@pytest.mark.parametrize("piece_bytes", [1, 20, 200])
def test_types_are_those_of_all_rows_at_once(piece_bytes: int, tmp_path: Path) -> None:
    place, kinds = tmp_path / "a.csv", set[str]()
    for seed in range(FILES):
        place.write_bytes(content(random.Random(seed)))
        types = types_in(place, piece_bytes=piece_bytes)
        assert list(types.items()) == list(scanned(place).collect_schema().items()), place.read_text()
        kinds |= set(map(str, types.values()))
        whole, read = attempt(scanned(place)), attempt(scanned(place, types))
        assert (
            read.equals(whole) if isinstance(read, pl.DataFrame) and isinstance(whole, pl.DataFrame) else read == whole
        )
    assert len(kinds) > 7, "values of nearly all types alone"


@given(st.text(alphabet='a",\n', max_size=40), st.integers(1, 9))
def test_pieces_end_where_rows_end(text: str, piece_bytes: int) -> None:
    pieces = list(_pieces(io.BytesIO(text.encode()), piece_bytes))
    assert b"".join(pieces) == text.encode()
    for each in pieces[:-1]:
        assert each.endswith(b"\n")
        assert each.count(b'"') % 2 == 0


@pytest.mark.parametrize("text", ["", "\n", "a,b", '"a\nb",c\n1,2\n', 'a,b\n1,"2""\n3"\n4,5'])
def test_a_file_without_rows_or_with_lines_in_texts_is_as_polars_takes_it(text: str, tmp_path: Path) -> None:
    place = tmp_path / "a.csv"
    place.write_text(text)
    try:
        expected = dict(scanned(place).collect_schema())
    except pl.exceptions.PolarsError as error:
        with pytest.raises(type(error)):
            types_in(place)
    else:
        assert types_in(place, piece_bytes=3) == expected


@pytest.mark.parametrize("text", ['a\n"never closed\n1\n2\n', "a,b\n1,2\n3,4,5\n"])
def test_a_file_that_polars_cannot_read_is_refused(text: str, tmp_path: Path) -> None:
    place = tmp_path / "a.csv"
    place.write_text(text)
    with pytest.raises(pl.exceptions.PolarsError):
        scanned(place).collect()
    with pytest.raises(pl.exceptions.PolarsError):
        scanned(place, types_in(place, piece_bytes=3)).collect()
