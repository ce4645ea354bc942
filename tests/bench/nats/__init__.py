"""What the chain of nodes is measured beside: three servers of NATS JetStream in a row."""
