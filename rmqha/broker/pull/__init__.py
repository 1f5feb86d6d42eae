"""Messages out: requests 11, 361, 12 and 33, with filters by tag and SQL92."""
