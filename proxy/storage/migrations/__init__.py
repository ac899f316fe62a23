"""Schema changes of the proxy's databases: SQL files, ``<database>_<version>.sql``."""
