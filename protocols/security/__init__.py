"""TLS: the files that a part identifies itself with, what is made of them, and when they expire."""
