"""Metrics for Prometheus: families.py makes them; README.md lists them and says how to use them.

alerts.yml are rules for Prometheus, dashboard.json is for Grafana.
"""
