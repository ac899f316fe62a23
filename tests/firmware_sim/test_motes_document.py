"""The files that docs/reference/motes.md shows are files that work."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import msgspec

from firmware_sim.lifetime.fleet_file import read_fleet
from firmware_sim.power.battery import known_batteries
from firmware_sim.power.program_file import read_program
from firmware_sim.radio.channel import read_faults
from protocols.power.costs import Component
from protocols.power.profiles import DeviceProfile, Lora, preset_names

TEXT = (Path(__file__).parents[2] / "docs" / "reference" / "motes.md").read_text()
FLEET, PROGRAM, FAULTS = re.findall(r"```toml\n(.*?)```", TEXT, re.DOTALL)


def test_the_files_shown_in_the_documentation_are_read(tmp_path):
    assert read_program(PROGRAM, "docs").report is not None
    assert len(read_fleet(FLEET.replace("s00*l[34]", "*"), "docs").motes) == 64
    (tmp_path / "radio.toml").write_text(FAULTS)
    assert read_faults(tmp_path / "radio.toml").garbled == 0.01


def test_every_preset_battery_and_component_is_named():
    for name in (*preset_names(), *known_batteries()):
        assert f"`{name}`" in TEXT, name
    words = TEXT.replace(",", "")
    for component in Component:
        assert component.value.split("_")[0] in words


def test_every_entry_of_a_profile_is_documented_with_its_default():
    rows = dict(re.findall(r"^\| `([a-z_.]+)` \| ([^|]*) \|", TEXT, re.MULTILINE))
    expected = {}
    for entry in msgspec.structs.fields(DeviceProfile):
        kinds = [each for each in (entry.type, *get_args(entry.type)) if isinstance(each, type)]
        table = next((each for each in kinds if issubclass(each, msgspec.Struct)), None)
        if table is None:
            expected[entry.name] = entry.default
        else:
            expected |= {f"{entry.name}.{each.name}": each.default for each in msgspec.structs.fields(table)}
    lora = msgspec.structs.fields(Lora)
    expected |= {f"radio.lora.{each.name}": each.default for each in lora}
    for added in ("sources", "radio.lora"):
        del expected[added]
    assert set(rows) >= set(expected)
    for name, default in expected.items():
        if default is msgspec.NODEFAULT:
            assert rows[name] == "needed", name
        elif default is None:
            assert rows[name] not in {"needed", ""}, name
        else:
            assert rows[name] == f"{default:g}", name
