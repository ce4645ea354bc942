"""The basis of everything else: time, timers, settings, errors. No module here knows about packets."""
