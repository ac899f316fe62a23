CREATE TABLE cluster (only INTEGER PRIMARY KEY CHECK (only = 1), identity TEXT NOT NULL);
