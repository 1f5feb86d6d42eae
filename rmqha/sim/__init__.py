"""A whole cluster in one thread under virtual time; the shells in it are the real ones.

One seed gives one story, byte for byte. Nothing here is imported by production code.
"""
