"""Where messages come in and go out: HTTP in by the gateway, calls out by the trigger, and what became of each."""
