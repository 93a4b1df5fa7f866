"""Begins at the first bucket each time.

check: test_goes_on
mistake: sent-twice
"""


def send_full_buckets(self):
    self.next = 0
    while self.next < len(self.buckets) and not self.buckets[self.next].missing:
        self.flight.start(self.buckets[self.next])
        self.next += 1
