"""What runs beside a gateway: demands become sampling programs, packets become batches.

Installs without Spark and without Java. Meets motes and cluster only through ``protocols`` and a broker.
"""
