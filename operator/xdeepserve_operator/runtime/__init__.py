"""The only place that talks to Kubernetes: kopf glue, client, store, lease, events, metrics."""
