"""Pure builders of child objects."""
