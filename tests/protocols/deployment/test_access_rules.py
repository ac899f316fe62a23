"""Access rules, as a function of names: each kind of topic, for each role, and nothing else."""

from __future__ import annotations

import inspect
import re

import pytest

from protocols.deployment.broker_configuration import Access, acl_text, rules_of
from protocols.deployment.names import Names, ProxyPart
from protocols.wire import topics
from tests.protocols.deployment.access_table import ALLOWED, NAMES, may

RULES = rules_of(NAMES)


def matches(pattern, topic):
    """Whether a filter matches a topic, as MQTT says."""
    expression = re.escape(pattern).replace(r"\+", "[^/]*").replace(r"/\#", "(/.*)?").replace(r"\#", ".*")
    return re.fullmatch(expression, topic) is not None


def kinds():
    """Names of the functions that build topics."""
    functions = inspect.getmembers(topics, inspect.isfunction)
    return {
        name
        for name, each in functions
        if each.__module__ == topics.__name__ and each.__annotations__["return"] == "str" and not name.startswith("_")
    } - {"check_name", "check_part_name"}


def test_the_table_has_each_kind_of_topic():
    own = [topic for topic in ALLOWED if topic.startswith(f"{topics.PREFIX}/") and "invented" not in topic]
    assert {topics.parse(topic).kind for topic in own} == kinds()
    assert len(kinds()) == 22


def test_each_kind_of_topic_has_a_writer_and_a_reader_and_one_kind_of_writer():
    for kind in kinds():
        named = [topic for topic in ALLOWED if topic.startswith(topics.PREFIX + "/") and "invented" not in topic]
        rows = [ALLOWED[topic] for topic in named if topics.parse(topic).kind == kind]
        assert any("w" in each for allowed in rows for each in allowed.values()), kind
        assert any("r" in each for allowed in rows for each in allowed.values()), kind
        assert all(sum("w" in each for each in allowed.values()) <= 1 for allowed in rows), kind


@pytest.mark.parametrize("user", NAMES.users)
@pytest.mark.parametrize("access", list(Access))
def test_rules_are_those_of_the_table(user, access):
    filters = [each.filter for each in RULES if each.user == user and each.access is access]
    found = {topic for topic in ALLOWED if any(matches(each, topic) for each in filters)}
    assert found == may(user, access.value[0])


def test_every_rule_is_needed():
    for rule in RULES:
        if rule.user.startswith("harbour"):
            continue  # as roadside, and the table has not all of it
        assert any(matches(rule.filter, topic) for topic in may(rule.user, rule.access.value[0])), rule


def test_users_come_one_after_another_and_nothing_before_the_first():
    lines = acl_text(RULES).splitlines()
    users = [line.removeprefix("user ") for line in lines if line.startswith("user ")]
    assert users == list(NAMES.users)
    first = lines.index(f"user {users[0]}")
    assert all(not line or line.startswith("#") for line in lines[:first])
    assert all(
        re.fullmatch(r"topic (read|write) \S+", line) for line in lines[first + 1 :] if line and "user " not in line
    )


def test_nobody_but_the_proxy_is_allowed_what_ends_a_spool_or_a_mote():
    harmless = Names(proxies=(ProxyPart("roadside"),))
    writers = {
        each.user for each in rules_of(harmless) if each.access is Access.WRITE and each.filter.endswith("/acks")
    }
    assert writers == {"cluster"}
