"""One reconciler a kind: observe, plan, apply, status."""
