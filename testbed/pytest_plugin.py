"""Fixtures and options for playbooks in pytest."""
