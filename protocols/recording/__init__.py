"""Logs of events: what a part received and sent, and when; and running it again on such a log, in simulated time."""
