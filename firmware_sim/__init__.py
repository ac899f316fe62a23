"""Simulated motes: phenomena, batteries, radios and the sampling programs they run.

They communicate with proxies only through ``protocols`` and a broker.
"""
