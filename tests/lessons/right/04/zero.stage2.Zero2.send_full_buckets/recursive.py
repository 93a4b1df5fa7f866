"""Calls itself for the bucket after the one that has left."""


def send_full_buckets(self):
    if self.next >= len(self.buckets) or self.buckets[self.next].missing:
        return
    self.flight.start(self.buckets[self.next])
    self.next += 1
    self.send_full_buckets()
