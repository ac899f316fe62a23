"""The fixed suite that every mutant meets: at most a minute of one core, what finds most first."""

from __future__ import annotations

SUITE = (
    # Whole queries against printed answers: seconds, and most mutants do not get past them.
    "tests/cluster/papers/test_query_vectors.py",
    "tests/cluster/papers/test_logical_vectors.py",
    "tests/cluster/papers/test_physical_vectors.py",
    # What the translator and the rules make of texts, printed.
    "tests/cluster/language/test_translation.py",
    "tests/cluster/language/test_errors.py",
    "tests/cluster/language/test_docs.py",
    "tests/cluster/plan/test_rewrite.py",
    # One unit after the other.
    "tests/cluster/language",
    "tests/cluster/plan",
    "tests/cluster/papers",
    "tests/cluster/fjord",
    # Random queries, from one seed; other oracles are added in there.
    "tests/mutants/seeded_oracles.py",
)
LEFT_OUT = (
    # Long, and its operators have such tests of their own.
    "tests/cluster/papers/test_algebra_checklist.py::test_state_is_bounded",
    # They measure time, or how much chance has drawn, which fewer examples change.
    "tests/cluster/plan/test_equivalence.py::test_random_plans_exercise_the_rules",
    "tests/cluster/plan/test_plan_files.py::test_the_thousandth_query_costs_no_more_than_the_tenth",
)
FEWER_EXAMPLES = 5
"""Property tests draw this part of their examples: the same ones in every run."""
LONGEST_SECONDS = 60.0
"""Of processor time, for the suite over the source as it is."""


def arguments() -> list[str]:
    """Return how pytest is called."""
    left_out = [f"--deselect={each}" for each in LEFT_OUT]
    return ["-x", "-q", "--no-header", "-p", "no:cacheprovider", "-p", "tests.mutants.shortening", *left_out, *SUITE]
