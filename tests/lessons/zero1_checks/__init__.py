"""The checks of lesson 02, a file an exercise."""
