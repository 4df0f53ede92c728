"""The program with a metric that misses what it counts. For a test of the campaign."""

import sys

from streamtopic.cli import main
from streamtopic.monitoring import metrics as catalogue
from streamtopic.monitoring.metrics import Metrics

count = Metrics.add


def _forgetful(self, family, amount=1, /, **labels):
    """Count, but no deleted document."""
    if family is not catalogue.RECORDS or labels["outcome"] != "deleted":
        count(self, family, amount, **labels)


Metrics.add = _forgetful

if __name__ == "__main__":
    sys.exit(main())
