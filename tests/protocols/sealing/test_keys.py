"""Keys are made, written, read, renewed and revoked."""

from __future__ import annotations

import pytest

from protocols.errors import SettingsError, TopicError
from protocols.sealing.keys import make_keys, read_deployment, read_mote_keys, read_part_keys

RANDOM, OTHER = b"r" * 32, b"q" * 32


def test_files_hold_what_each_part_needs_and_no_more():
    keys = make_keys(RANDOM, ["a", "b"])
    files = keys.files()
    assert set(files) == {"cluster.keys", "proxy-a.keys", "motes-a.keys", "proxy-b.keys", "motes-b.keys"}
    masters = {f"motes {name}": each.master for name, each in keys.motes.items()}
    secrets = {"cluster": keys.cluster, **keys.proxies, **masters}
    assert len(set(secrets.values())) == 5
    held = {file: {name for name, secret in secrets.items() if secret.hex() in text} for file, text in files.items()}
    assert held == {
        "cluster.keys": {"cluster"},
        "proxy-a.keys": {"a", "motes a"},
        "proxy-b.keys": {"b", "motes b"},
        "motes-a.keys": {"motes a"},
        "motes-b.keys": {"motes b"},
    }
    assert read_deployment(files) == keys
    assert read_mote_keys(files["motes-a.keys"], "a") == read_part_keys(files["proxy-a.keys"], "a").motes


def test_other_random_bytes_make_other_keys():
    first, second = make_keys(RANDOM, ["a"]), make_keys(OTHER, ["a"])
    assert first == make_keys(RANDOM, ["a"])
    assert {first.cluster, first.proxies["a"], first.motes["a"].master}.isdisjoint(
        {second.cluster, second.proxies["a"], second.motes["a"].master}
    )
    with pytest.raises(ValueError, match="32 random bytes"):
        make_keys(b"short", [])


def test_renewing_one_leaves_the_others():
    before = make_keys(RANDOM, ["a", "b"])
    after = before.renewed(OTHER, proxies=["a", "c"])
    for find in (lambda keys: keys.cluster, lambda keys: keys.proxies["b"], lambda keys: keys.motes["a"]):
        assert find(after) == find(before)
    assert after.proxies["a"] != before.proxies["a"]
    assert set(after.motes) == {"a", "b", "c"}
    assert before.renewed(OTHER, cluster=True).cluster != before.cluster
    assert before.renewed(OTHER, cluster=True).proxies == before.proxies
    assert read_deployment(after.files()) == after


def test_a_proxy_that_is_revoked_is_in_no_file():
    after = make_keys(RANDOM, ["a", "b"]).without("a")
    assert set(after.files()) == {"cluster.keys", "proxy-b.keys", "motes-b.keys"}
    assert not [text for text in after.files().values() if '"a"' in text]
    with pytest.raises(SettingsError, match="no keys of proxy 'a'"):
        after.without("a")


def test_a_motes_secret_is_its_own_and_can_be_renewed():
    before = make_keys(RANDOM, ["a", "b"])
    after = before.with_renewed_mote("a", "m1").with_renewed_mote("a", "m1").with_renewed_mote("a", "m2")
    assert after.motes["a"].generations == {"m1": 3, "m2": 2}
    names = [(proxy, mote) for proxy in "ab" for mote in ("m1", "m2", "m3")]
    secrets = [keys.motes[proxy].secret(mote) for keys in (before, after) for proxy, mote in names]
    assert len(set(secrets)) == 3 + 3 + 2
    assert read_deployment(after.files()) == after
    with pytest.raises(SettingsError):
        before.with_renewed_mote("c", "m1")


@pytest.mark.parametrize("name", ["a/b", "", "+", "x" * 65, '"'])
def test_names_are_those_of_topics(name):
    with pytest.raises(TopicError):
        make_keys(RANDOM, [name])
    with pytest.raises(TopicError):
        make_keys(RANDOM, ["a"]).with_renewed_mote("a", name)


def test_files_that_do_not_fit_together_are_refused():
    files = make_keys(RANDOM, ["a"]).files()
    with pytest.raises(SettingsError, match=r"proxy-a.keys is missing"):
        read_deployment({name: text for name, text in files.items() if name != "proxy-a.keys"})
    with pytest.raises(SettingsError, match=r"has no \[motes\]"):
        read_deployment({**files, "proxy-a.keys": files["cluster.keys"]})
