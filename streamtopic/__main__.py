"""The same program as `streamtopic`, started by `python -m streamtopic`."""

from streamtopic.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
