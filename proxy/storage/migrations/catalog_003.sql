-- Devices of other makers: the driver that each belongs to, the driver's own name for it, and the latest boot of its frames.
CREATE TABLE driven_motes (
    mote TEXT PRIMARY KEY, driver TEXT NOT NULL, device TEXT NOT NULL, boot INTEGER NOT NULL
);
