"""Sends one, and leaves others that are full.

check: test_turns
mistake: one-only
"""


def send_full_buckets(self):
    if self.next < len(self.buckets) and not self.buckets[self.next].missing:
        self.flight.start(self.buckets[self.next])
        self.next += 1
