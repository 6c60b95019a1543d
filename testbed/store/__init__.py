"""Runs on disk and in the index, and their exports."""
