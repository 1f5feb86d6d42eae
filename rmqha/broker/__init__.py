"""A broker replica: its place in the broker set, its topics, and the requests that it answers."""
