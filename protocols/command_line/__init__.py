"""The console command `fjord`: its subcommands, their options, and how errors are shown."""
