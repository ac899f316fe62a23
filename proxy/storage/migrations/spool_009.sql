-- The process that wrote a batch, and the last one of each stream; the process that has the spool now; whether the cluster
-- has shown that it reads them.
ALTER TABLE batches ADD COLUMN writer BLOB;
ALTER TABLE progress ADD COLUMN writer BLOB;
CREATE TABLE writer (only INTEGER PRIMARY KEY CHECK (only = 1), number BLOB NOT NULL);
CREATE TABLE writers_read (only INTEGER PRIMARY KEY CHECK (only = 1));
