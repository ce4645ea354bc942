"""Traces: reads and writes the trace of a message, and makes its spans for an OpenTelemetry collector.

context.py reads W3C's trace context, and edges.py has what gateways and triggers report. asked.py finds out whether
anybody wants spans, and starting.py begins them. Only sdk/ needs opentelemetry-sdk; it is imported on demand.
"""
