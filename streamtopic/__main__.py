"""The program as `streamtopic` and `python -m streamtopic` start it."""

import signal
import sys

__all__ = ["start"]


def start() -> int:
    """Load the program and run it; return its exit status. Ctrl-C ends it at any moment without a traceback."""
    try:
        # Loading takes a second. An exception could come in the middle of an import, where some are printed and not
        # raised, so the signal itself ends the process meanwhile. Who has it ignored, as `nohup` does, is left alone.
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
        from streamtopic.cli import main

        if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        return main()
    except KeyboardInterrupt:
        # Before a command has begun, or while it ends: `main` catches all others.
        sys.stderr.write("streamtopic: interrupted\n")
        return 130


if __name__ == "__main__":
    raise SystemExit(start())
