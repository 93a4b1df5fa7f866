"""The checks of lesson 01, a file an exercise."""
