"""The edges: the gateway accepts messages, the trigger calls services, the history records outcomes."""
