"""The proxy beside a gateway: demands become sampling programs, packets become batches.

It needs neither Spark nor Java, and communicates with motes and cluster only over a broker, as ``protocols`` defines.
"""
