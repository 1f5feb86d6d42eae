"""What name servers are told (103, 104), and when."""
