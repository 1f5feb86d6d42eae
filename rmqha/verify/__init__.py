"""Safety properties as code, one a file; tests, simulator and chaos runs all use these."""
