"""Shells of the controller: disk, peers, requests, timers."""
