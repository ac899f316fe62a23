"""Tokens with roles: their file, how it is changed while a cluster runs, and the commands for it."""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from cluster.errors import ClusterError
from cluster.service.access.command import token
from cluster.service.access.roles import Role
from cluster.service.access.tokens import (
    LOOK_SECONDS,
    AccessToken,
    Caller,
    TokenFileError,
    Tokens,
    digest_of,
    new_token,
    parse_tokens,
    read_tokens,
)
from cluster.service.running.settings import ClusterSettings
from cluster.service.server import ClusterServer

DIGEST = hashlib.sha256(b"hunter2").hexdigest()
ENTRY = f'[[token]]\nname = "grafana"\nrole = "read"\nsha256 = "{DIGEST}"\n'


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def file(tmp_path: Path) -> Path:
    found = tmp_path / "tokens.toml"
    found.write_text(ENTRY)
    return found


def test_a_file_has_names_roles_and_digests() -> None:
    assert parse_tokens(ENTRY) == (AccessToken("grafana", Role.READ, DIGEST),)
    assert parse_tokens("") == ()
    assert parse_tokens(AccessToken("a.b@c-d", Role.ADMIN, DIGEST).toml)[0].role is Role.ADMIN


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[[token", "it is not TOML"),
        ('name = "x"', "an entry is not a token"),
        (ENTRY.replace("grafana", ""), r"\.token\[0\]\.name"),
        (ENTRY.replace("grafana", "a b"), r"\.token\[0\]\.name"),
        (ENTRY.replace("read", "root"), r"\.token\[0\]\.role"),
        (ENTRY.replace(DIGEST, "hunter2"), r"\.token\[0\]\.sha256"),
        (ENTRY.replace("sha256", "token"), r"\.token\[0\]"),
        (ENTRY + "expires = 2030-01-01\n", r"\.token\[0\]"),
        (ENTRY + ENTRY, "the same name"),
        (ENTRY + ENTRY.replace("grafana", "other"), "the same sha256"),
        ("".join(f'[[token]]\nname="n{n}"\nrole="read"\nsha256="{n:064x}"\n' for n in range(1001)), "not a token"),
        ("a = " + "[" * 100_000, "it is not TOML|not a token"),
    ],
)
def test_a_faulty_file_is_refused_and_not_quoted(text: str, reason: str) -> None:
    with pytest.raises(TokenFileError, match=reason) as caught:
        parse_tokens(text)
    assert "hunter2" not in str(caught.value)
    assert DIGEST not in str(caught.value)


@given(st.text(max_size=80))
def test_no_text_is_quoted(text: str) -> None:
    try:
        parse_tokens(f'{text}\nx = "hunter2"')
    except TokenFileError as error:
        assert "hunter2" not in str(error)


def test_others_may_read_the_file_but_not_write_to_it(file: Path) -> None:
    file.chmod(0o644)
    assert len(read_tokens(file)) == 1
    file.chmod(0o646)
    with pytest.raises(TokenFileError, match="all users may write"):
        read_tokens(file)


def test_files_that_cannot_be_read_are_refused(tmp_path: Path) -> None:
    (tmp_path / "latin").write_bytes(b"# \xe4")
    (tmp_path / "long").write_bytes(b"#" * 2_000_000)
    for name, reason in (("none", "No such file"), ("latin", "not UTF-8"), ("long", "more than 1,048,576 bytes")):
        with pytest.raises(TokenFileError, match=reason):
            Tokens(file=tmp_path / name)


def test_the_token_of_the_environment_is_one_of_the_role_admin(file: Path) -> None:
    tokens = Tokens("own", file)
    assert tokens.caller("Bearer own") == Caller("FJORD_API_TOKEN", Role.ADMIN)
    assert tokens.caller("Bearer hunter2") == Caller("grafana", Role.READ)
    for header in (None, "", "Bearer", "Bearer ", "own", "Basic own", "Bearer Own", f"Bearer {DIGEST}", "Bearer own "):
        assert tokens.caller(header) is None, header


def test_a_file_without_entries_lets_nobody_in(file: Path) -> None:
    file.write_text("# all tokens are revoked\n")
    tokens = Tokens(file=file)
    assert tokens.required
    assert tokens.caller("Bearer hunter2") is None
    assert not Tokens().required
    assert not Tokens("").required
    assert Tokens().caller(None) == Caller("", Role.ADMIN)


class Rotated:
    """Tokens whose file is changed, and a clock."""

    def __init__(self, file: Path) -> None:
        self.clock = Clock()
        self.tokens = Tokens(file=file, clock=self.clock)

    def role(self, token: str) -> Role | None:
        self.clock.now += LOOK_SECONDS
        found = self.tokens.caller(f"Bearer {token}")
        return None if found is None else found.role


def test_a_changed_file_is_read_again(file: Path) -> None:
    rotated = Rotated(file)
    assert rotated.role("hunter2") is Role.READ
    file.write_text(ENTRY.replace("read", "admin"))
    assert rotated.role("hunter2") is Role.ADMIN
    other = file.with_name("other")
    other.write_text(ENTRY.replace(DIGEST, digest_of("new")))
    other.replace(file)
    assert (rotated.role("hunter2"), rotated.role("new")) == (None, Role.READ)
    file.write_text("")
    assert rotated.role("new") is None
    assert rotated.tokens.trouble is None


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (lambda file: file.write_text("[[token"), "it is not TOML"),
        (lambda file: file.write_text(ENTRY.replace("read", "root")), r"\.role"),
        (lambda file: file.unlink(), "No such file"),
        (lambda file: file.chmod(0o666), "all users may write"),
    ],
)
def test_a_change_that_cannot_be_followed_keeps_the_tokens_of_before_and_says_so(
    file: Path, spoil: Callable[[Path], object], reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    rotated = Rotated(file)
    spoil(file)
    assert rotated.role("hunter2") is Role.READ
    with pytest.raises(TokenFileError, match=reason):
        read_tokens(file)
    assert rotated.tokens.as_json()["trouble"] == rotated.tokens.trouble is not None
    assert rotated.role("hunter2") is Role.READ
    shown = capsys.readouterr()
    assert (shown.out + shown.err).count("has changed and is not followed") == 1
    file.write_text(ENTRY.replace(DIGEST, digest_of("new")))
    file.chmod(0o644)
    assert (rotated.role("hunter2"), rotated.role("new"), rotated.tokens.trouble) == (None, Role.READ, None)


def test_the_file_is_not_looked_at_for_every_request(file: Path) -> None:
    rotated = Rotated(file)
    file.write_text("")
    rotated.clock.now = LOOK_SECONDS * 0.9
    assert rotated.tokens.caller("Bearer hunter2") is not None
    rotated.clock.now = LOOK_SECONDS
    assert rotated.tokens.caller("Bearer hunter2") is None


# Commands


def run(*arguments: str) -> str:
    result = CliRunner().invoke(token, list(arguments))
    if isinstance(result.exception, ClusterError):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.output


def test_a_token_is_printed_once_with_its_entry() -> None:
    drawn, _, entry = run("create", "grafana", "--role", "query").partition("\n\n")
    (found,) = parse_tokens(entry)
    assert (found.name, found.role, found.sha256) == ("grafana", Role.QUERY, digest_of(drawn))
    assert len(drawn) >= 43
    assert drawn not in entry


def test_a_token_is_added_to_a_file_whose_comments_stay(tmp_path: Path) -> None:
    file = tmp_path / "tokens.toml"
    first = run("create", "grafana", "--role", "read", "--file", str(file)).strip()
    assert stat.S_IMODE(file.stat().st_mode) & 0o022 == 0
    file.write_text("# of the road office\n" + file.read_text())
    file.chmod(0o640)
    second = json.loads(run("create", "ops", "--role", "admin", "--file", str(file), "--json"))
    tokens = Tokens(file=file)
    assert tokens.caller(f"Bearer {first}") == Caller("grafana", Role.READ)
    assert tokens.caller(f"Bearer {second['token']}") == Caller("ops", Role.ADMIN)
    assert file.read_text().startswith("# of the road office\n")
    assert stat.S_IMODE(file.stat().st_mode) == 0o640
    assert not any(each in file.read_text() for each in (first, second["token"]))
    assert run("list", str(file)) == "grafana  read\nops  admin\n"
    assert [each["name"] for each in json.loads(run("list", str(file), "--json"))] == ["grafana", "ops"]
    assert os.listdir(tmp_path) == ["tokens.toml"]  # noqa: PTH208


def test_a_name_is_given_once(file: Path) -> None:
    with pytest.raises(TokenFileError, match="has a token 'grafana' already"):
        run("create", "grafana", "--role", "read", "--file", str(file))
    assert file.read_text() == ENTRY


def test_a_token_is_not_printed_if_its_entry_cannot_be_written(tmp_path: Path) -> None:
    result = CliRunner().invoke(token, ["create", "a", "--role", "read", "--file", str(tmp_path / "no" / "t.toml")])
    assert isinstance(result.exception, TokenFileError)
    assert result.output == ""


@pytest.mark.parametrize("name", ["", "a b", 'a"', "ä", "-a", "a" * 65])
def test_odd_names_are_refused(name: str) -> None:
    with pytest.raises(TokenFileError, match="is not a name of a token"):
        new_token(name, Role.READ)


def test_an_unknown_role_is_wrong_usage() -> None:
    result = CliRunner().invoke(token, ["create", "a", "--role", "root"], env={"COLUMNS": "200"})
    assert result.exit_code == 2
    assert "'root' is none of read, query, admin" in result.output


# A cluster


def test_the_api_is_opened_to_others_with_tokens_only(tmp_path: Path, file: Path) -> None:
    with pytest.raises(ClusterError, match=r"listen on 0\.0\.0\.0 without a token"):
        ClusterServer(ClusterSettings(folder=tmp_path / "a", api_host="0.0.0.0"))
    server = ClusterServer(ClusterSettings(folder=tmp_path / "b", api_host="0.0.0.0", api_tokens=file))
    server.close()


def test_a_cluster_with_a_faulty_file_does_not_start(tmp_path: Path, file: Path) -> None:
    file.write_text("[[token")
    with pytest.raises(TokenFileError, match="cannot be used: it is not TOML"):
        ClusterServer(ClusterSettings(folder=tmp_path / "a", api_tokens=file))
    assert not (tmp_path / "a").exists()
