"""All plants."""

from __future__ import annotations

from itertools import chain

from tests.simulation.planted import (
    answer_plants,
    cluster_plants,
    delivery_plants,
    demand_plants,
    device_plants,
    proxy_plants,
    publisher_plants,
)

PLANTS = tuple(
    chain(
        cluster_plants.PLANTS,
        proxy_plants.PLANTS,
        delivery_plants.PLANTS,
        demand_plants.PLANTS,
        device_plants.PLANTS,
        answer_plants.PLANTS,
        publisher_plants.PLANTS,
    )
)
