"""Metrics for Prometheus: families.py makes them; docs/how-to/prometheus.md says how to use them.

alerts.yml are rules for Prometheus, dashboard.json is for Grafana.
"""
