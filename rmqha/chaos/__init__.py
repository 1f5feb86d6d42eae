"""Faults on real processes: what to break, how it went, and what to tell of it.

Cores: which hosts and links a fault takes (``scenarios``), the kernel's rules for links (``rules``),
what a run came to (``outcome``), and its report. The shells in ``aio/`` keep hosts in network
namespaces of their own, start controllers, name server and brokers there, and play the rounds.
"""
