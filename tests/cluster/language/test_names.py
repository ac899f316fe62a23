"""Names that are taken: each new one is found in proportion to what it takes, not to how many there are."""

from __future__ import annotations

from cluster.language.scope import Names, unique_name


class CountingNames(Names):
    """Counts how often it is asked whether a name is taken."""

    asked = 0

    def __contains__(self, name: str) -> bool:
        self.asked += 1
        return super().__contains__(name)


def test_equal_names_get_numbers_without_counting_from_one_again() -> None:
    names = CountingNames(["v_3", "lane"])
    found = [names.unique("v") for _ in range(1_000)]
    assert found[:4] == ["v", "v_2", "v_4", "v_5"]
    assert len(set(found)) == 1_000
    assert names.asked < 3 * 1_000


def test_case_makes_no_difference() -> None:
    names = Names(["Lane"])
    assert "lANE" in names
    assert names.unique("lane") == "lane_2"
    names.add("SPEED")
    assert unique_name("speed", ["SPEED", "Speed_2"]) == "speed_3"
    assert names.unique("speed") == "speed_2"
