"""The scenes of `fjord demo`: a plan is planned anew while rates change, and nothing of its answers is lost."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

pytestmark = [pytest.mark.system, pytest.mark.spark]

SECONDS = 280.0


def demo(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "protocols.command_line", "demo", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)


@pytest.mark.proof
def test_a_query_goes_on_with_a_cheaper_plan_when_rates_change() -> None:
    done = demo("--scene", "replan")
    assert (done.returncode, done.stderr) == (0, "")
    before, after = done.stdout.split("it is rush hour")
    assert re.search(r"^ \* +1 .* as planned without costs", before, re.MULTILINE)
    assert re.search(r"joined migrating \(plan \d: streams are joined as \(.*\(it saves: ", after)
    assert re.search(r"joined migrated +\+0 -\d", after)
    (due,) = re.findall(r"by brute force they have ([\d,]+) answers", after)
    assert due != "0"
    assert f"joined has answered {due}: 0 lost, 0 too many or wrong" in after


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--scene", "unknown"), "'unknown' is not one of 'traffic', 'replan'"),
        (("--scene", "replan", "--motes", "3"), "--motes: the scene replan has no use for it; leave it out"),
    ],
)
def test_what_a_scene_cannot_do_is_refused(arguments: tuple[str, ...], words: str) -> None:
    done = demo(*arguments)
    assert done.returncode == 2
    assert words in " ".join(done.stderr.replace("│", " ").split())
