"""Writes and removes the folders of an operator."""
