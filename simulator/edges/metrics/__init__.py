"""What gateways and triggers tell Prometheus, and those who keep processes running."""
