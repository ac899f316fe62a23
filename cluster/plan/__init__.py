"""Logical plans: rewriting them into cheaper ones, showing them, and deriving what they demand of sensors."""
