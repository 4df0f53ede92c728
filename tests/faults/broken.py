"""The program with its guards taken out: a commit is done whatever the state is by then. For a test of the campaign."""

import re
import sys

from streamtopic.cli import main
from streamtopic.state import scripts

compare = re.compile(r"^if have\[\d\] [=~]= plan\.\w+ then return .*$\n", re.MULTILINE)
scripts.COMMIT_FLUSH, removed = compare.subn("", scripts.COMMIT_FLUSH)
if not removed:
    raise SystemExit("nothing was taken out of the commit script: this test has lost its point")

if __name__ == "__main__":
    sys.exit(main())
