"""Functions of users: which may be named, and the processes that run them, one for each function."""
