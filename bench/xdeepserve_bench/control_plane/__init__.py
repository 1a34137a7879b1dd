"""``bench control-plane``: the operator at the size of a SuperPod, against Kubernetes' own controllers.

A real API server, scheduler and controller-manager; kwok plays the servers, so pods are Ready without any process. What
engines would say comes from one stand-in (see ``standin``) at the TE-shells' and frontends' addresses, so that a
ModelDeployment becomes Ready by the operator's ordinary path: rosters, memberships, routes. The operator is a process
of its own with the rights of its chart's service account. The peer is a StatefulSet of as many pods of the same
template, in the same cluster, before the operator starts.

A decode instance is 768 DP groups of one die. ``XDEEPSERVE_SOAK_MINUTES`` sets how long the soak runs.
"""

from xdeepserve_bench.control_plane.run import run

__all__ = ["run"]
