"""Checks of what is installed: against the lock, against RECORD, who owns what, what Python finds, known bad states."""
