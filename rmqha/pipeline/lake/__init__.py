"""A lake of messages: how its files are named, read, merged and replaced."""
