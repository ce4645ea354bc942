"""Accepts messages over HTTP. Accepted messages are on disk, and nothing is accepted twice.

Read gateway.py first, which has the rules. front.py handles requests and answers, refusals.py has the answers other
than 200, and openapi.py describes both for programs. tokens.py has the permissions, and admission.py has the limits.
outlet.py is the gateway's end of the connection to the node, and run.py puts everything together.
"""
