"""Sends every bucket that is full, whoever was to go before it.

check: test_turns
mistake: out-of-turn
"""


def send_full_buckets(self):
    for bucket in self.buckets:
        if not bucket.missing:
            self.flight.start(bucket)
