"""What sampling spends: batteries, the sun, and motes in virtual time."""
