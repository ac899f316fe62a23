"""How many samples of each mote were due, and how many are missing."""
