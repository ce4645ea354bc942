"""Takes messages in over HTTP: accepted messages are on disk, and nothing is accepted twice.

Read gateway.py first, which has the rules. front.py says what requests mean and what is answered, refusals.py what a
producer is told that is not 200, openapi.py the same for programs; tokens.py who may do what, admission.py how much.
outlet.py is the end of the connection to the node; run.py puts all of it together.
"""
