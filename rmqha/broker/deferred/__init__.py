"""Messages that are not for now: delays, timers, transactions; and how a broker writes by itself."""
