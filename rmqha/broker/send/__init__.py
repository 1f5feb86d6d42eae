"""Messages in: requests 10, 310, 320, 36, 37, 324, 325 and 370."""
