"""Reduces, and keeps the parameters: the memory of ZeRO-2.

check: test_lets_go
mistake: not-released
"""


def close(self, unit):
    unit.open = False
    unit.backward_calls.clear()
    for bucket in unit.trainable:
        self.flight.start(bucket)
