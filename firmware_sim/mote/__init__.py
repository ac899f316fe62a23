"""One mote as a state machine: what happens to it, its clocks, when it wakes."""
