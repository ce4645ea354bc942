"""What everything stands on: time, timers, settings, errors. It knows no packet."""
