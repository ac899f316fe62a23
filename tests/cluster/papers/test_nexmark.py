"""NEXMark's queries (papers/pipes_algebra.md section 2.3) from their text, against the oracle on generated auctions."""

from __future__ import annotations

import pytest

from tests.cluster.papers.nexmark import CATALOG, QUERIES, generated
from tests.cluster.papers.queries import check_against_oracle


@pytest.mark.parametrize("text", QUERIES.values(), ids=list(QUERIES))
def test_nexmark_queries_answer_as_defined_on_generated_auctions(text: str) -> None:
    answered = 0
    for seed in range(5):
        streams, instants = generated(seed)
        answered += check_against_oracle(text, CATALOG, streams, instants, seed)
    assert answered > 0, "an empty answer proves nothing"
