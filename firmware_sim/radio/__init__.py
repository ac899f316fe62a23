"""What happens to packets between mote and proxy."""
