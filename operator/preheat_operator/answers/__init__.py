"""How pods were served, as they report it: who may report, what a report may say, and what is counted of it.

`server.py` is the process around it. Everything here but the counters themselves is pure: no I/O, and the time is given.
"""
