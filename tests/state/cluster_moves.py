"""What happens to a cluster in these tests: the same accidents as in a campaign of faults."""

from streamtopic.lab.faults.accidents import SlotMove, cut_off, fail_over, lose, wait_until

__all__ = ["SlotMove", "cut_off", "fail_over", "lose", "wait_until"]
