"""The checks of lesson 00, a file an exercise, and what they do on ranks."""
