"""Hubs: an index of environments as files, in a folder or on any web server.

A hub is checked by reading it. Searching, showing and verifying import no code of a published package.
"""
