"""The console: one page in a browser that shows nodes while they run, and lets operators act.

    nodes ──control sockets──► watch ──► facts ──► feed ──server-sent events──► pages in browsers
      ▲                                                                              │
      └──────────────────────────────── deeds ◄── front: token, role ◄──POST─────────┘

First read `watch.py`, which asks the nodes once for all browsers together, and not at all while nobody is looking. Then
read `facts.py`, which makes the facts for a page, and `front.py`, which checks requests. `page/` is the page: plain
files, without a build step.
"""
