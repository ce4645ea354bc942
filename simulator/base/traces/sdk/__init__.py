"""What needs opentelemetry-sdk.

tracer.py begins spans, exporting.py sends them from a thread of the SDK's. stays.py makes them of a node's waypoints,
messaging.py of what gateways and triggers do.
"""
