"""The checks of lesson 06."""
