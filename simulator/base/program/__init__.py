"""The surroundings of our programs: settings, signals, and the service manager."""
