"""Sends all of them, full or not.

check: test_turns
mistake: not-full
"""


def send_full_buckets(self):
    while self.next < len(self.buckets):
        self.flight.start(self.buckets[self.next])
        self.next += 1
