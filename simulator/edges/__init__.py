"""The edges: the gateway takes messages in over HTTP, the trigger calls services, and the history records outcomes."""
