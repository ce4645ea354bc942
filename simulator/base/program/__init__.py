"""What our programs need from their surroundings: settings, signals, and the service manager."""
