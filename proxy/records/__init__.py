"""From the records of a packet to tuples: which queries each is for, and what was left out on the air."""
