"""What users and controllers say to each other: kinds, names, labels."""
