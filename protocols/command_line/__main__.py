"""`python -m protocols.command_line` is `fjord`."""

from protocols.command_line.application import main

main()
