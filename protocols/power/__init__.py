"""The draw of a sampling program on a device: profiles with their sources, costs, and the closed-form estimate."""
