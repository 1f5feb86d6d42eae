"""Who consumes and produces, how far groups are, who holds which queue."""
