"""Plans: rewriting them into cheaper ones with the same meaning, and showing them. Imports language."""
