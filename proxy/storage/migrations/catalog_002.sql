-- The pieces of demands that are more than one message; a demand of one message, or the head of one, is in "demands".
CREATE TABLE demand_pieces (
    stream TEXT NOT NULL, number INTEGER NOT NULL, payload BLOB NOT NULL, PRIMARY KEY (stream, number)
);
