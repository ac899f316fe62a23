CREATE TABLE published_stamps (
    stream TEXT NOT NULL,
    mote TEXT NOT NULL,
    stamp_us INTEGER NOT NULL,
    PRIMARY KEY (stream, mote, stamp_us)
) WITHOUT ROWID;
