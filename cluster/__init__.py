"""What runs on Spark: the query language, plans, Fjord operators, ingest and results.

Needs the extra ``fjord[cluster]`` and Java 17 or later. Meets proxies only through ``protocols`` and a broker.
"""
