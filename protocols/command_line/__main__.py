"""`python -m protocols.command_line` is `fjord`. Until all is imported, Ctrl-C ends it at once, and prints nothing."""

from __future__ import annotations

import signal


def main() -> None:
    """Run `fjord`; see :func:`protocols.command_line.application.main`."""
    interrupted = signal.getsignal(signal.SIGINT)
    if interrupted is signal.default_int_handler:  # and not ignored, as in the background
        # In the middle of an import an exception would be shown with a traceback, or be taken for a missing library.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from protocols.command_line import application

    signal.signal(signal.SIGINT, interrupted)
    application.main()


if __name__ == "__main__":
    main()
