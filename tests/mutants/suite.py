"""The fixed suite that runs on every mutant: at most a minute of one core, the most effective tests first."""

from __future__ import annotations

SUITE = (
    # Whole queries against printed answers: they take seconds and kill most mutants.
    "tests/cluster/papers/test_query_vectors.py",
    "tests/cluster/papers/test_logical_vectors.py",
    "tests/cluster/papers/test_physical_vectors.py",
    # Printed results of the translator and the rules.
    "tests/cluster/language/test_translation.py",
    "tests/cluster/language/test_errors.py",
    "tests/cluster/language/test_docs.py",
    "tests/cluster/plan/test_rewrite.py",
    # Single units.
    "tests/cluster/expressions",
    "tests/cluster/language",
    "tests/cluster/plan",
    "tests/cluster/physical",
    "tests/cluster/papers",
    "tests/cluster/fjord",
    "tests/test_docstrings.py::test_examples_are_true[cluster/fjord]",
    "tests/test_docstrings.py::test_examples_are_true[cluster/language]",
    "tests/test_docstrings.py::test_examples_are_true[cluster/plan]",
    # Scans, state of operators, and answers.
    "tests/cluster/local/test_engine.py",
    # Random queries from one seed; further oracles are added there.
    "tests/mutants/seeded_oracles.py",
)
NEAREST = {
    "translator": "tests/cluster/language",
    "rules": "tests/cluster/plan",
    "operators": "tests/cluster/fjord",
}
"""By area, the places of its own tests: they come right behind the vectors."""
_VECTORS = SUITE[:3]
LEFT_OUT = (
    # Long, and its operators have such tests of their own.
    "tests/cluster/papers/test_algebra_checklist.py::test_state_is_bounded",
    # They bound the work of planning over texts of a hundred kilobytes; smaller ones have the same meaning.
    "tests/cluster/language/test_nesting.py::test_the_longest_text_is_refused_or_planned",
    "tests/cluster/language/test_nesting.py::test_what_is_opened_and_never_closed_is_refused",
    "tests/cluster/language/test_nesting.py::test_parsing_that_tries_every_join_ends_after_a_bounded_number_of_steps",
    "tests/cluster/language/test_nesting.py::test_chains_are_no_nesting",
    "tests/cluster/plan/test_bounded_planning.py::test_large_queries_take_steps_in_proportion_to_their_text",
    "tests/cluster/plan/test_bounded_planning.py::test_shared_parts_mean_what_they_meant",
    "tests/cluster/plan/test_bounded_planning.py::test_ten_thousand_values",
    "tests/cluster/plan/test_bounded_planning.py::test_what_leaves_many_intervals",
    "tests/cluster/plan/test_bounded_planning.py::test_a_long_list_takes_few_steps_for_each_of_its_values",
    "tests/cluster/plan/test_bounded_planning.py::test_semicolons_at_the_end_take_no_steps",
    "tests/cluster/fjord/test_predicate_index.py::test_a_condition_of_thousands_of_values_is_looked_up",
    "tests/cluster/fjord/test_extreme_values.py::test_expressions_of_thousands_of_terms_are_evaluated",
    # Damaged texts must get an error of ours; other tests check which one.
    "tests/cluster/language/test_comments.py",
    "tests/cluster/language/test_damaged_statements.py",
    "tests/cluster/language/test_robustness.py",
    # Auctions: the random queries below find the same faults.
    "tests/cluster/papers/test_nexmark.py::test_nexmark_queries_answer_as_defined_on_generated_auctions",
    # They measure time, or coverage of random draws, which fewer examples change.
    "tests/cluster/plan/test_equivalence.py::test_random_plans_exercise_the_rules",
    "tests/cluster/physical/test_plan_files.py::test_the_thousandth_query_costs_no_more_than_the_tenth",
)
FEWER_EXAMPLES = 10
"""Property tests draw this share of their examples: the same ones in every run."""
LONGEST_SECONDS = 60.0
"""Seconds of processor time for the suite on the unchanged source."""


def arguments(area: str | None = None) -> list[str]:
    """Return the arguments of pytest: the same tests for every mutant, those of its own area early."""
    left_out = [f"--deselect={each}" for each in LEFT_OUT]
    nearest = [] if area is None else [NEAREST[area]]
    ordered = list(dict.fromkeys([*_VECTORS, *nearest, *SUITE]))
    return ["-x", "-q", "--no-header", "-p", "no:cacheprovider", "-p", "tests.mutants.shortening", *left_out, *ordered]
