"""Relations read files of allowed folders only, wherever a path, a link or the log of a table leads."""

from __future__ import annotations

import os
import sqlite3
import string
import tempfile
from contextlib import closing
from pathlib import Path

import polars as pl
import pytest
from deltalake import write_deltalake
from hypothesis import given
from hypothesis import strategies as st

from cluster.language.errors import FjordSqlError
from cluster.operators.columns import Column
from cluster.relations.allowed_files import AllowedFiles
from cluster.relations.opening import Reach
from cluster.relations.source import SourceAwayError, SourceRefusedError
from protocols.wire.streams import FieldType
from tests.cluster.relations.source_cases import opened

COLUMNS = (Column("a", FieldType.TEXT),)
SECRET = "hunter2"
KINDS = ("sqlite", "csv", "parquet", "delta")


class Place:
    """An allowed folder `open` with the cluster's data inside, and a folder `closed` beside it."""

    def __init__(self, root: Path) -> None:
        self.open, self.closed, self.data = root / "open", root / "closed", root / "open" / "data"
        for folder in (self.open, self.closed, self.data):
            folder.mkdir()
        self.reach = Reach(AllowedFiles([self.open], never=[self.data]))

    def read(self, address: object, more: str = "") -> list[tuple[object, ...]]:
        return opened(str(address), name="t", more=more, reach=self.reach).rows(COLUMNS).rows()


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def table(kind: str, folder: Path, value: str = SECRET) -> Path:
    """Write a table of one row."""
    path, frame = folder / f"t.{kind}", pl.DataFrame({"a": [value]})
    match kind:
        case "sqlite":
            with closing(sqlite3.connect(path)) as database, database:
                database.execute("CREATE TABLE t (a TEXT)")
                database.execute("INSERT INTO t VALUES (?)", [value])
        case "csv":
            frame.write_csv(path)
        case "parquet":
            frame.write_parquet(path)
        case _:
            write_deltalake(path, frame.to_arrow())
    return path


@pytest.mark.parametrize("kind", KINDS)
def test_files_below_an_allowed_folder_are_read(place: Place, kind: str) -> None:
    assert place.read(f"{kind}:{table(kind, place.open)}") == [(SECRET,)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("written", ["{closed}/t.{kind}", "{open}/../closed/t.{kind}", "{open}/link/t.{kind}"])
def test_files_outside_are_refused(place: Place, kind: str, written: str) -> None:
    table(kind, place.closed)
    (place.open / "link").symlink_to(place.closed)
    with pytest.raises(SourceRefusedError, match="outside of the folders"):
        place.read(f"{kind}:{written.format(closed=place.closed, open=place.open, kind=kind)}")


@pytest.mark.parametrize("kind", KINDS)
def test_the_data_of_the_cluster_are_refused_though_their_folder_is_allowed(place: Place, kind: str) -> None:
    table(kind, place.data)
    (place.open / "link").symlink_to(place.data)
    for folder in (place.data, place.open / "link", place.open / "x" / ".." / "data"):
        with pytest.raises(SourceRefusedError, match="belongs to the cluster"):
            place.read(f"{kind}:{folder}/t.{kind}")


def test_a_folder_of_data_under_another_name_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # As on a disk whose names have no case, or where a folder is mounted twice.
    data, other = tmp_path / "data", tmp_path / "DATA"
    for folder in (data, other):
        folder.mkdir()
        table("csv", folder)
    state = data.stat()
    stat = Path.stat

    def one_folder(path: Path, **named: bool) -> os.stat_result:
        return state if path == other else stat(path, **named)

    monkeypatch.setattr(Path, "stat", one_folder)
    with pytest.raises(SourceRefusedError, match="belongs to the cluster"):
        AllowedFiles([tmp_path], never=[data]).file(other / "t.csv")


@pytest.mark.parametrize("address", ["{}/.pgpass", "{}/.ssh/t.csv", "{}/x/../.env"])
def test_hidden_files_are_refused_unless_their_folder_is_named(place: Place, address: str) -> None:
    (place.open / ".ssh").mkdir()
    written = address.format(place.open)
    with pytest.raises(SourceRefusedError, match="outside of the folders"):
        place.reach.files.file(Path(written))
    assert AllowedFiles([place.open / ".ssh"]).file(place.open / ".ssh" / "t.csv")


@pytest.mark.parametrize("path", ["/proc/self/environ", "/dev/stdin", "/sys/kernel/notes"])
def test_what_the_system_shows_of_processes_is_refused_even_below_the_root(path: str) -> None:
    with pytest.raises(SourceRefusedError):
        AllowedFiles([Path("/")]).file(Path(path))


def test_secret_files_are_refused(place: Place) -> None:
    secret = place.open / "tokens.csv"
    secret.write_text("a\nx\n")
    place.reach = Reach(AllowedFiles([place.open], never=[place.open / "none", secret]))
    with pytest.raises(SourceRefusedError, match="belongs to the cluster"):
        place.read(secret)


@pytest.mark.parametrize("name", ["secure/authority/ca.key", "cluster.keys"])
def test_files_of_keys_are_refused_wherever_they_are(place: Place, name: str) -> None:
    secret = place.open / name
    secret.parent.mkdir(parents=True, exist_ok=True)
    secret.write_text("a\nx\n")
    with pytest.raises(SourceRefusedError, match="belongs to the cluster"):
        place.reach.files.file(secret)


@pytest.mark.parametrize("kind", ["sqlite", "csv", "parquet"])
def test_a_file_with_a_second_name_is_read_only_if_all_users_may_read_it(place: Place, kind: str) -> None:
    # What may write into an allowed folder may give a secret of the cluster's user another name there.
    secret = table(kind, place.closed)
    path = place.open / secret.name
    path.hardlink_to(secret)
    for mode in (0o600, 0o640):
        secret.chmod(mode)
        with pytest.raises(SourceRefusedError, match="has a second name"):
            place.read(f"{kind}:{path}")
    secret.chmod(0o644)
    assert place.read(f"{kind}:{path}") == [(SECRET,)]
    secret.chmod(0o600)
    secret.unlink()
    assert place.read(f"{kind}:{path}") == [(SECRET,)]


@pytest.mark.parametrize("files", ["*.parquet", "_delta_log/*.json"])
def test_a_delta_table_has_no_file_with_a_second_name(place: Place, files: str) -> None:
    secret, inside = table("delta", place.closed), table("delta", place.open, "fine")
    (theirs,), (ours,) = secret.glob(files), inside.glob(files)
    theirs.chmod(0o600)
    ours.unlink()
    ours.hardlink_to(theirs)
    with pytest.raises(SourceRefusedError, match="has a second name"):
        place.read(f"delta:{inside}")


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_folder_of_links_is_no_file(place: Place, kind: str) -> None:
    folder = place.open / f"all.{kind}"
    folder.mkdir()
    (folder / f"t.{kind}").symlink_to(table(kind, place.closed))
    with pytest.raises(SourceRefusedError, match="is not a file"):
        place.read(folder)


def test_a_pipe_is_not_waited_for(place: Place) -> None:
    os.mkfifo(place.open / "pipe.csv")
    with pytest.raises(SourceRefusedError, match="is not a file"):
        place.read(place.open / "pipe.csv")


@pytest.mark.parametrize("kind", KINDS)
def test_a_link_that_is_changed_later_is_refused_when_it_is_read_again(place: Place, kind: str) -> None:
    link, good = place.open / "link", place.open / "good"
    good.mkdir()
    table(kind, good, "fine")
    table(kind, place.closed)
    link.symlink_to(good)
    source = opened(f"{kind}:{link}/t.{kind}", name="t", reach=place.reach)
    assert source.rows(COLUMNS).rows() == [("fine",)]
    link.unlink()
    link.symlink_to(place.closed)
    for call in (source.columns, lambda: source.rows(COLUMNS)):
        with pytest.raises(SourceRefusedError, match="outside of the folders"):
            call()
    if kind in {"sqlite", "parquet", "delta"}:
        with pytest.raises(SourceRefusedError):
            source.estimate()


def test_a_link_that_is_changed_while_it_is_read_is_noticed(place: Place) -> None:
    files, link = place.reach.files, place.open / "link"
    for name in ("one", "two"):
        (place.open / name).write_text("")
    link.symlink_to(place.open / "one")

    def change() -> None:
        with files.reading(link):
            link.unlink()
            link.symlink_to(place.open / "two")

    with pytest.raises(SourceAwayError, match="was replaced while it was read"):
        change()


@pytest.mark.parametrize("address", ["delta:s3://bucket/t", "delta:https://h/t", "delta:az://c/t", "delta:file://h/t"])
def test_delta_tables_of_other_stores_would_be_asked_with_the_keys_of_the_process(address: str) -> None:
    with pytest.raises(FjordSqlError, match="read from a folder of this machine"):
        opened(address)


def test_a_uri_of_a_file_is_its_path(place: Place) -> None:
    assert place.read(f"delta:file://{table('delta', place.open)}") == [(SECRET,)]
    table("delta", place.closed)
    for uri in (f"file://{place.open}/../closed/t.delta", f"file://{place.open}/%2e%2e/closed/t.delta"):
        with pytest.raises(SourceRefusedError, match="outside of the folders"):
            place.read(f"delta:{uri}")


@pytest.mark.parametrize("name", ["%2e%2e", "a\\b", "a\nb"])
def test_folders_that_the_library_would_read_as_others_are_refused(place: Place, name: str) -> None:
    (place.open / name).mkdir()
    with pytest.raises(SourceRefusedError, match="read as another"):
        place.read(f"delta:{place.open}/{name}/t")


@pytest.mark.parametrize("way", ["file", "folder", "log", "entry", "below the log"])
def test_a_delta_table_with_links_to_the_outside_is_refused(place: Place, way: str) -> None:
    secret, inside = table("delta", place.closed), table("delta", place.open, "fine")
    match way:
        case "file":
            (data,) = inside.glob("*.parquet")
            (other,) = secret.glob("*.parquet")
            data.unlink()
            data.symlink_to(other)
        case "folder":
            inside.rename(place.open / "other")
            inside.symlink_to(secret)
        case "log":
            for each in sorted((inside / "_delta_log").iterdir()):
                each.unlink()
            (inside / "_delta_log").rmdir()
            (inside / "_delta_log").symlink_to(secret / "_delta_log")
        case "below the log":
            (inside / "_delta_log" / "_sidecars").mkdir()
            (inside / "_delta_log" / "_sidecars" / "s.parquet").symlink_to(next(secret.glob("*.parquet")))
        case _:
            (entry,) = (inside / "_delta_log").glob("*.json")
            entry.unlink()
            entry.symlink_to(secret / "_delta_log" / entry.name)
    with pytest.raises(SourceRefusedError, match="outside of the folders"):
        place.read(f"delta:{inside}")


@pytest.mark.parametrize("written", ["../../closed/t.delta/{}", "%2e%2e/%2e%2e/closed/t.delta/{}", "{closed}/{}"])
def test_a_delta_table_whose_log_names_files_outside_is_refused(place: Place, written: str) -> None:
    (other,) = table("delta", place.closed).glob("*.parquet")
    inside = table("delta", place.open)
    (data,) = inside.glob("*.parquet")
    (entry,) = (inside / "_delta_log").glob("*.json")
    named = written.replace("{closed}", str(place.closed / "t.delta")).replace("{}", other.name)
    entry.write_text(entry.read_text().replace(data.name, named))
    with pytest.raises(SourceRefusedError, match="names a file outside of the table"):
        place.read(f"delta:{inside}")


def test_a_statement_of_sqlite_reads_no_other_file(place: Place) -> None:
    other = table("sqlite", place.closed)
    source = opened(f"sqlite:{table('sqlite', place.open, 'fine')}", name="t", reach=place.reach)
    for statement in (
        f"ATTACH '{other}' AS other",
        f"ATTACH 'file:{other}?mode=ro' AS other",
        f"VACUUM INTO '{place.open}/copy.db'",
        "SELECT load_extension('x')",
        "CREATE VIRTUAL TABLE temp.v USING fts5(a)",
        "DELETE FROM t",
    ):
        with pytest.raises(Exception, match=r"SQLITE_AUTH|not authorized|readonly"), source._opened() as database:
            database.execute(statement)
    with closing(sqlite3.connect(place.open / "t.sqlite")) as database:
        assert database.execute("SELECT a FROM t").fetchall() == [("fine",)]


def test_the_root_reaches_all_and_nothing_reaches_nothing(tmp_path: Path) -> None:
    path = table("csv", tmp_path)
    assert AllowedFiles([Path("/")]).file(path) == path.resolve()
    with pytest.raises(SourceRefusedError):
        AllowedFiles().file(path)


@pytest.mark.parametrize("name", ["x" * 5000, "loop"])
def test_odd_names_are_no_files(place: Place, name: str) -> None:
    (place.open / "loop").symlink_to(place.open / "loop")
    with pytest.raises((SourceRefusedError, SourceAwayError)):
        place.read(f"csv:{place.open}/{name}")


def test_a_name_with_a_zero_is_no_file(place: Place) -> None:
    with pytest.raises(SourceRefusedError, match="is not the name of a file"):
        place.reach.files.file(place.open / "a\0b")


PARTS = st.one_of(
    st.sampled_from(["..", ".", "open", "closed", "data", "link", "deep", "back", ".hidden", "%2e%2e", "~", "file:"]),
    st.text(string.ascii_letters + "._%~ ", min_size=1, max_size=4),
)


@given(st.lists(PARTS, max_size=8), st.booleans())
def test_no_path_leads_out_of_the_allowed_folders(parts: list[str], from_root: bool) -> None:
    with tempfile.TemporaryDirectory() as name:
        root = Path(name).resolve()
        place = Place(root)
        (place.open / "deep").mkdir()
        (place.open / "link").symlink_to("../closed")
        (place.open / "deep" / "back").symlink_to(place.data)
        (place.closed / "back").symlink_to(place.open)
        path = Path(root if from_root else place.open, *parts)
        really = Path(os.path.realpath(path))
        allowed = (
            really.is_relative_to(place.open)
            and not really.is_relative_to(place.data)
            and not any(part.startswith(".") for part in really.relative_to(place.open).parts)
        )
        try:
            found = place.reach.files.folder(path)
        except SourceRefusedError:
            assert not allowed
        else:
            assert allowed
            assert found == really
