"""Takes messages in over HTTP: accepted messages are on disk, and nothing is accepted twice.

Read gateway.py first, which has the rules. front.py handles requests and answers, refusals.py has the answers other
than 200, and openapi.py describes both for programs. tokens.py has the permissions, admission.py the limits. outlet.py
is the end of the connection to the node; run.py puts all of it together.
"""
