"""What the chain of nodes is measured beside: three brokers of RabbitMQ in a row, joined by shovels."""
