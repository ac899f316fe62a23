"""From what queries demand to what a sensor does: pure functions that proxy, simulator and EXPLAIN ENERGY share."""
