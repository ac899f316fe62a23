"""Written files: those that are not UTF-8 are refused with the line, whatever reads them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from firmware_sim.lifetime.fleet_file import load_fleet
from firmware_sim.power.program_file import load_program
from firmware_sim.radio.channel import read_faults
from protocols.errors import SettingsError
from protocols.power.profiles import find_profile
from protocols.text.plain_text import read_text_file

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.mark.parametrize(
    "load", [load_fleet, load_program, read_faults, lambda path: find_profile(str(path))],
    ids=["fleet", "program", "radio", "profile"],
)  # fmt: skip
def test_what_is_not_utf8_is_refused_with_its_line(tmp_path: Path, load: Callable[[Path], object]) -> None:
    path = tmp_path / "given.toml"
    path.write_bytes(b"# first\n# second \xff\n")
    with pytest.raises(SettingsError, match=r"line 2 of .*given\.toml is not UTF-8"):
        load(path)
    with pytest.raises(SettingsError, match="cannot be read: Is a directory"):
        load(make_folder(tmp_path))


def make_folder(tmp_path: Path) -> Path:
    (tmp_path / "folder.toml").mkdir()
    return tmp_path / "folder.toml"


def test_a_byte_order_mark_is_no_text(tmp_path: Path) -> None:
    (tmp_path / "given.toml").write_text("\ufeffa = 1")
    assert read_text_file(tmp_path / "given.toml", "the file") == "a = 1"
