"""The frontend (JE, job executor): OpenAI's HTTP API in front of prefill and decode instances.

A request is tokenised, prefilled on one instance, decoded on another of the same revision, and its tokens relayed
as they come. Modules, from the wire inwards: ``server`` (process), ``api`` and ``admin`` (routes), ``answer`` (SSE and
JSON replies), ``documents`` and ``planning`` (requests), ``shapes`` (replies), ``job`` and ``generation``
(one request's path with its retries), ``upstream`` and ``relay`` (engines and shells), ``routing`` (who serves what).
"""
