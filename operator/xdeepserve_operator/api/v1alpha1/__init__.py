"""Pydantic types of serving.xdeepserve.io/v1alpha1, one file a kind."""
