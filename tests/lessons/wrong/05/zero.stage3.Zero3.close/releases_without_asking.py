"""Releases a unit that somebody else still uses.

check: test_still_needed
mistake: released-anyway
"""


def close(self, unit):
    unit.open = False
    unit.backward_calls.clear()
    for bucket in unit.trainable:
        self.flight.start(bucket)
    unit.release()
