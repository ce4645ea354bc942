"""What a node tells Prometheus: families.py has the metrics, README.md the same as a table, and how to use them.

alerts.yml are rules for Prometheus, dashboard.json is for Grafana.
"""
