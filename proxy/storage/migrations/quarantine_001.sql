CREATE TABLE frames (
    number INTEGER PRIMARY KEY,
    heard_us INTEGER NOT NULL,
    topic TEXT NOT NULL,
    reason TEXT NOT NULL,
    detail TEXT NOT NULL,
    payload BLOB NOT NULL
);
