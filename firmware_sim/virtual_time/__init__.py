"""The same motes as live ones, sample by sample, in virtual time: no broker, no waiting."""
