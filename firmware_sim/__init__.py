"""Simulated motes: phenomena, batteries, radios and the sampling programs they run.

Meets proxies only through ``protocols`` and a broker.
"""
