"""What everything else builds on: time, timers, settings, errors. Nothing here knows packets."""
