"""The checks of lesson 05, a file an exercise."""
