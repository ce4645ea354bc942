"""Traces: what belongs to one, and its spans for a collector of OpenTelemetry's.

context.py reads W3C's trace context, edges.py is what gateways and triggers tell. asked.py finds out whether somebody
wants spans, and starting.py begins them. sdk/ has what needs opentelemetry-sdk, and is imported by nobody else.
"""
