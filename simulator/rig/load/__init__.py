"""The load: messages, their senders and their receivers, over TCP and over HTTP."""
