"""The state machines of live motes, sample by sample, in virtual time: no broker, no waiting."""
