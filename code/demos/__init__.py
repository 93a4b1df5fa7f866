"""What `python code/main.py` can do, one module a subcommand."""
