"""Dataflows: operators as state machines, the queues between them, their scheduler (papers/fjords.md section 2).

Nothing here depends on Spark or MQTT; the same dataflow runs in a test, in one process or inside Spark.
"""
