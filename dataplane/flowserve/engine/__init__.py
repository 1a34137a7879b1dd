"""The engine of one DP group: a scheduler, a model, and a loop in step with the other groups of its instance."""
