"""Metrics for Prometheus: families.py makes them; docs/how-to/prometheus.md explains how to use them.

alerts.yml contains rules for Prometheus, and dashboard.json is for Grafana.
"""
