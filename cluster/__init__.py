"""The cluster: language, plans, operators, the local host and the one on Spark, ingest, service.

Needs the extra ``fjord[cluster]``, which brings a Java runtime for machines without Java 17 or later. Meets proxies
only through ``protocols`` and a broker.
"""
