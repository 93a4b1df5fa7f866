"""Sets next back when all buckets have left.

check: test_goes_on
mistake: next-reset
"""


def send_full_buckets(self):
    while self.next < len(self.buckets) and not self.buckets[self.next].missing:
        self.flight.start(self.buckets[self.next])
        self.next += 1
    if self.next == len(self.buckets):
        self.next = 0
