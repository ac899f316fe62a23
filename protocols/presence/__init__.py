"""One name, one part: a part that is started under a name that another one uses is refused."""
