"""Does not move on.

check: test_turns
mistake: next-stays
"""


def send_full_buckets(self):
    for bucket in self.buckets[self.next :]:
        if bucket.missing:
            break
        self.flight.start(bucket)
