"""Plans: making them cheaper without changing their meaning, and showing them. Imports language."""
