"""Fjords: operators that are state machines, the queues between them, and their scheduler (papers/fjords.md section 2).

Nothing here knows Spark or MQTT; the same Fjord runs in a test, in one process or inside Spark.
"""
