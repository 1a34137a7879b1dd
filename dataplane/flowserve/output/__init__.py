"""The output process of an engine: it owns the API port, turns tokens into text, and streams it to the frontend.

It is a process of its own, so that detokenising and slow clients take no time from the engine's loop. The two speak
over a socket pair (``link``); neither outlives the other.
"""
