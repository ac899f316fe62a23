"""The sources of relations: databases, files and the catalog of sensors, as tables of Fjord's four types."""
