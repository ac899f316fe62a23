"""Spark's Python processes as forks of a process that has loaded everything.

    Spark  ->  stand_in.py  ->  the forking parent  ->  a fork, which runs a module of PySpark

:mod:`~cluster.spark.forking.parent` holds the parent, :mod:`~cluster.spark.forking.stand_in` what Spark runs in place
of Python.
"""
