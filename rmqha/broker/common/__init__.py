"""What several rooms of a broker need: settings, refusals, tables with versions, figures."""
