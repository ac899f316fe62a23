"""Sampling programs carried out sample by sample: one file per kind of report."""
