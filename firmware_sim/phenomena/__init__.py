"""The worlds of motes: generated traffic, recorded traces."""
