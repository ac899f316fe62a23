"""What sampling costs: device profiles, energy by component, batteries, the sun, and motes in virtual time."""
