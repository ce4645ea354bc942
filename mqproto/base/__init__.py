"""The basis of everything else: time, timers, settings and errors. No module here knows about packets."""
