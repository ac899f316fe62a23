"""Rewriting rules: equivalences of papers/pipes_algebra.md section 4, one small pure function each.

A rule takes a node and returns an equivalent, cheaper one, or None where its precondition does not hold. It inspects
the node and those directly below it; :mod:`cluster.plan.rewrite` applies it everywhere.
"""
