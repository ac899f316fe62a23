"""A pytest plugin for runs over mutants: fewer examples, the same in every run, fewer collections, and limits."""

from __future__ import annotations

import gc
import os
import resource
from pathlib import Path

import pytest
from hypothesis import Phase, is_hypothesis_test, settings

import cluster
from tests.examples import TIMES
from tests.mutants.suite import FEWER_EXAMPLES

FEWEST = 4
CPU_LIMIT = "FJORD_MUTANT_CPU_SECONDS"
MEMORY_LIMIT = "FJORD_MUTANT_MEMORY_BYTES"


def pytest_configure(config: pytest.Config) -> None:
    """Limit this process, and check that it tests the copy that it is in."""
    for name, limit in ((CPU_LIMIT, resource.RLIMIT_CPU), (MEMORY_LIMIT, resource.RLIMIT_AS)):
        if name in os.environ:
            most = int(os.environ[name])
            resource.setrlimit(limit, (most, most))
    os.environ[TIMES] = "1"  # the share below is one of all examples
    found = Path(cluster.__file__ or "").parent.parent
    if found != config.rootpath:
        raise pytest.UsageError(f"the cluster in {found} would be tested, not the one in {config.rootpath}")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let property tests draw fewer examples, without a database, and not shrink them."""
    for item in items:
        test = getattr(item, "obj", None)
        if is_hypothesis_test(test):
            # Hypothesis has no public way to change the settings of a test that has been decorated.
            test._hypothesis_internal_use_settings = shorter(test._hypothesis_internal_use_settings)


def pytest_collection_finish() -> None:
    """Exclude imported objects from garbage collection, which would take an eighth of the time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)


def pytest_sessionfinish() -> None:
    """Include them again before the process ends."""
    gc.unfreeze()


def shorter(given: settings) -> settings:
    """Return settings for a share of the examples."""
    return settings(
        given,
        max_examples=max(min(FEWEST, given.max_examples), given.max_examples // FEWER_EXAMPLES),
        phases=[Phase.explicit, Phase.generate],
        deadline=None,
        database=None,
        derandomize=True,
    )
