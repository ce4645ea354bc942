"""The basis of everything else: time, timers, settings, errors. Nothing here knows packets."""
