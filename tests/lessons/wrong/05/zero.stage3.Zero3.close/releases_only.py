"""Releases the parameters, and the gradients go nowhere.

check: test_reduces
mistake: not-reduced
"""


def close(self, unit):
    unit.open = False
    unit.backward_calls.clear()
    self._release(unit)
