"""The physical plan: what runs of an epoch, as a value that is printed, compared, costed and instantiated.

Imports no operator and no host (docs/decisions/0009-one-physical-plan.md).
"""
