"""One mote: its clock, its presence, its packets, its program, step by step."""
