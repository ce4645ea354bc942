"""Modules that need opentelemetry-sdk.

tracer.py begins spans, and exporting.py sends them from a thread of the SDK. stays.py makes spans from a node's
waypoints, and messaging.py makes them from the work of gateways and triggers.
"""
