"""Execution of sampling programs, sample by sample: one file per kind of report."""
