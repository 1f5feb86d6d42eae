"""Shells of a broker: the connections to controllers and name servers, and the request processors."""
