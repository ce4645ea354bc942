"""What our programs need around their work: settings, signals, the service manager."""
