"""The radio between mote and proxy."""
