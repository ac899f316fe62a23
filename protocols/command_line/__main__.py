"""`python -m protocols.command_line` is `fjord`."""

from protocols.command_line.entry import main

main()
