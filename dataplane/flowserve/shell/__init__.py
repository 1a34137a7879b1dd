"""The TE-shell of an instance: it listens to the ranks, tells them who is a member, and says which has room."""
