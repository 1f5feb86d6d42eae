"""Jobs: each a pure ``DataFrame -> DataFrame`` with a thin ``run`` around it."""
