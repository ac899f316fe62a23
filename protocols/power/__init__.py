"""What a sampling program draws on a device: profiles with their sources, costs, and the closed-form estimate."""
