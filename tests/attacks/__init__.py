"""Strangers as processes: one attack for each row of the threats, and tests that use them."""
