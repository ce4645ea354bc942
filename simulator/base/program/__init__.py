"""What surrounds our programs: settings, signals, and the service manager."""
