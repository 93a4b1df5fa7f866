"""Lesson 04: gradients in buckets, reduced during backward, and only a shard of them kept."""

from course.registry import Exercise, Lesson

LESSON = Lesson(
    number=4,
    topic="zero2",
    title="ZeRO-2",
    minutes=75,
    exercises=(
        Exercise(
            "zero.stage2.assign_to_buckets",
            minutes=10,
            difficulty=1,
            hints=(
                "Sizes 4, 4, 4, capacity 8: how many buckets? And with a size of 20 among them?",
                "Go through the sizes once. Keep how much room the last bucket has. If the next "
                "one does not fit, begin a new bucket with the whole capacity as its room; then "
                "put it in, whatever its size.",
                """
                    buckets, room = [], 0
                    for i, size in enumerate(sizes):
                        if (there is no bucket yet) or (it does not fit):
                            (a new empty bucket; all of the room)
                        buckets[-1].append(i)
                        room -= size
                    return buckets
                """,
            ),
        ),
        Exercise(
            "zero.flight.Flight.start",
            minutes=10,
            difficulty=2,
            hints=(
                "One bucket at most is on its way. What must happen to it before the next leaves? "
                "And what stands in the flat gradients where a parameter was not used?",
                "Land first. Close the bucket's gradients. Make room for the shard's average, as "
                "long as bucket.master. Start the reduction and keep the handle, without waiting.",
                """
                    self.land()
                    bucket.close_gradients()
                    shard = torch.empty_like(bucket.master)
                    self.bucket = bucket
                    self.work = self.opt.reduce_bucket(bucket, shard, async_op=...)
                """,
            ),
        ),
        Exercise(
            "zero.flight.Flight.land",
            minutes=15,
            difficulty=2,
            hints=(
                "With two micro-batches a bucket is reduced twice before the step. What must the "
                "shard's gradient be then? And what does the bucket's memory hold after landing?",
                "Nothing on its way: return. Otherwise wait for the work, which gives the average. "
                "Store it as owned_grad, or add it to the one that is there. Free the whole "
                "gradients, and forget bucket and work.",
                """
                    if self.bucket is None:
                        return
                    bucket, work = self.bucket, self.work
                    self.bucket = self.work = None
                    average = work.wait()
                    (first one: store; later ones: add in place)
                    bucket.free_grad()
                """,
            ),
        ),
        Exercise(
            "zero.stage2.Zero2.send_full_buckets",
            minutes=15,
            difficulty=2,
            hints=(
                "Rank 0's bucket 1 is full before its bucket 0; on rank 1 it is the other way "
                "round. If each sends what is full, which collectives meet?",
                "All ranks send in one order. Look at the bucket whose turn it is, at position "
                "self.next. As long as it is full, send it and go on to the next.",
                """
                    while (there is a next bucket) and (nothing is missing in it):
                        self.flight.start(...)
                        self.next += 1
                """,
            ),
        ),
    ),
)
