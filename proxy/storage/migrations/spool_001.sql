CREATE TABLE identity (only INTEGER PRIMARY KEY CHECK (only = 1), proxy TEXT NOT NULL, epoch TEXT NOT NULL);
CREATE TABLE batches (
    stream TEXT NOT NULL,
    sequence INTEGER NOT NULL,
    rows INTEGER NOT NULL,
    payload BLOB NOT NULL,
    PRIMARY KEY (stream, sequence)
);
CREATE TABLE progress (
    stream TEXT PRIMARY KEY,
    sequence INTEGER NOT NULL,
    watermark_us INTEGER,
    sampling INTEGER NOT NULL
);
CREATE TABLE positions (
    mote TEXT PRIMARY KEY,
    boot INTEGER NOT NULL,
    sequence INTEGER NOT NULL,
    clock_us INTEGER NOT NULL
);
