"""mqproto as a service: units for systemd, an image for containers, and one file with all settings."""
