"""The shells of users and permissions."""
