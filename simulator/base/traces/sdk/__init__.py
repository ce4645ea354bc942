"""Modules that need opentelemetry-sdk.

tracer.py begins spans, exporting.py sends them from a thread of the SDK. stays.py makes them from a node's waypoints,
messaging.py from the work of gateways and triggers.
"""
