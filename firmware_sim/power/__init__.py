"""The energy of sampling: batteries, the sun, and motes in virtual time."""
