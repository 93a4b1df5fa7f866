"""Checks of lesson 08 that look at the disk."""
