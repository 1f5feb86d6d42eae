"""The client's shells: exchanges over a connection, and a cluster whose masters come and go."""
