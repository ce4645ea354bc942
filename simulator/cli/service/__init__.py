"""mqproto as a service: units for systemd, a container image, and a single file with all settings."""
