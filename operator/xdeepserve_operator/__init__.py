"""The operator: reconciles the kinds of serving.xdeepserve.io."""
