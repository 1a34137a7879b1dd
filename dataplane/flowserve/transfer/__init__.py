"""KV from prefill to decode engines: tickets on one side, pulls on the other, XCCL in between.

A finished prefill keeps its blocks under a ticket. A decode engine that has room pulls: it asks the prefill engine by
HTTP, which lays the KV out in a region and tells by XCCL where; the decode engine reads it there. Either side learns of
the end from a completion queue, and only then lets go: the prefill engine of its blocks, the decode engine of its wait.
"""
