-- What drivers keep of their devices, as of the tuples that are stored.
CREATE TABLE device_states (mote TEXT PRIMARY KEY, state BLOB NOT NULL);
