"""Messages: what is sent, by whom, and who receives it, over TCP and over HTTP."""
