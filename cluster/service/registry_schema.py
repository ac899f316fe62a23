"""The registry's tables, one script per version of its schema."""

from __future__ import annotations

MIGRATIONS = (
    """
    CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL);
    CREATE TABLE queries (
        name TEXT PRIMARY KEY, sql TEXT NOT NULL, node BLOB NOT NULL,
        since_epoch INTEGER NOT NULL, created_us INTEGER NOT NULL
    );
    CREATE TABLE plans (epoch INTEGER PRIMARY KEY, plan BLOB NOT NULL);
    CREATE TABLE published (id INTEGER PRIMARY KEY CHECK (id = 0), version INTEGER NOT NULL, row INTEGER NOT NULL);
    CREATE TABLE quarantine (
        id INTEGER PRIMARY KEY AUTOINCREMENT, seen_us INTEGER NOT NULL, kind TEXT NOT NULL, reason TEXT NOT NULL,
        origin TEXT NOT NULL, content BLOB NOT NULL
    );
    """,
    """
    CREATE TABLE streams (
        number INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL UNIQUE COLLATE NOCASE, text TEXT NOT NULL
    );
    ALTER TABLE queries ADD COLUMN reads TEXT NOT NULL DEFAULT '[]';
    """,
    """
    CREATE TABLE relations (
        number INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL UNIQUE COLLATE NOCASE, text TEXT NOT NULL,
        columns BLOB NOT NULL, fresh_us INTEGER
    );
    CREATE TABLE waiting (
        number INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL UNIQUE, sql TEXT NOT NULL,
        created_us INTEGER NOT NULL, reads TEXT NOT NULL, relations TEXT NOT NULL
    );
    """,
    """
    -- No table changes; but the state of operators does, and versions without a marker know of this number only.
    """,
)
"""Scripts are never changed once released. Numbers of relations never come back, so that identities do not."""
