"""Passes over a bucket that is not full.

check: test_turns
mistake: out-of-turn
"""


def send_full_buckets(self):
    for bucket in self.buckets[self.next :]:
        if not bucket.missing:
            self.flight.start(bucket)
            self.next += 1
