"""What the operator counts, in Prometheus form; names follow controller-runtime where it has one."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

REGISTRY = CollectorRegistry()
RECONCILE_TOTAL = Counter(
    "xdeepserve_reconcile_total", "Reconciliations by kind and result.", ["kind", "result"], registry=REGISTRY
)
RECONCILE_SECONDS = Histogram(
    "xdeepserve_reconcile_duration_seconds",
    "Time of a reconciliation, in seconds.",
    ["kind"],
    buckets=(0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10),
    registry=REGISTRY,
)
QUEUE_DEPTH = Gauge("xdeepserve_workqueue_depth", "Keys waiting for a reconciler.", registry=REGISTRY)
API_CALLS = Counter(
    "xdeepserve_api_calls_total", "Requests to the API server.", ["verb", "resource"], registry=REGISTRY
)
LEADER = Gauge("xdeepserve_leader", "1 while this process holds the Lease.", registry=REGISTRY)
EVENTS_DROPPED = Counter("xdeepserve_events_dropped_total", "Events that could not be written.", registry=REGISTRY)
