-- Topic filters of subscriptions that the session of devices at the broker may have.
CREATE TABLE session_filters (filter TEXT PRIMARY KEY);
