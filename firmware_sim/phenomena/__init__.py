"""What motes sense: generated traffic, recorded traces."""
