"""The surroundings of our programs: settings, signals, the service manager."""
