"""Lesson 05: parameters sharded as well, gathered when they are needed."""

from course.registry import Exercise, Lesson

LESSON = Lesson(
    number=5,
    topic="zero3",
    title="ZeRO-3",
    minutes=110,
    exercises=(
        Exercise(
            "zero.unit.Unit.start_gather",
            minutes=15,
            difficulty=2,
            hints=(
                "The parameters are views of the storage of b.flat. What happens to them if you "
                "put a new tensor into b.flat, and what if you give the old storage its memory "
                "back?",
                "If the unit is not SHARDED, return. Set the state. Then for each bucket three "
                "lines: resize the storage to as many bytes as b.flat has elements times the bytes "
                "of one element; copy the shard into b.owned(b.flat); start the all-gather with "
                "async_op=True and keep the Work. Wait for nothing.",
                """
                    if self.state is not State.SHARDED:
                        return
                    self.state = ...
                    for b in self.buckets:
                        b.flat.untyped_storage().resize_((elements) * b.flat.element_size())
                        b.owned(b.flat).copy_(...)
                        work = comm.all_gather(b.flat, group=self.group, async_op=True)
                        (where will gather look for it?)
                """,
            ),
        ),
        Exercise(
            "zero.unit.Unit.release",
            minutes=10,
            difficulty=2,
            hints=(
                "Autograd holds tensors that share the storage of b.flat. Which operation frees "
                "their memory as well, although you cannot reach them?",
                "If the state is GATHERING, self.gather() waits for what is on its way. Then for "
                "each bucket: resize the storage of b.flat to 0 bytes, and mark each parameter as "
                "released, with its own name. At last the state is SHARDED.",
                """
                    if self.state is State.GATHERING:
                        self.gather()
                    for b in self.buckets:
                        b.flat.untyped_storage().resize_(0)
                        for name, p in zip(...):
                            mark_released(...)
                    self.state = ...
                """,
            ),
        ),
        Exercise(
            "zero.stage3.Zero3.close",
            minutes=10,
            difficulty=2,
            hints=(
                "self._release(unit) does nothing while unit.open is True. So what must come "
                "before it?",
                "Four steps: unit.open is False; unit.backward_calls is emptied; "
                "self.flight.start(bucket) for each bucket of unit.trainable (frozen parameters "
                "have no gradients to send); self._release(unit).",
                """
                    unit.open = False
                    unit.backward_calls.clear()
                    for bucket in (which buckets?):
                        self.flight.start(bucket)
                    self._release(unit)
                """,
            ),
        ),
        Exercise(
            "zero.stage3.Zero3.before_backward",
            minutes=15,
            difficulty=2,
            hints=(
                "A head whose weight is tied to the embedding: which two units must be FULL while "
                "the head's backward computes? And why is it too early to prefetch while two units "
                "are open?",
                "Tell the prefetcher, then for each unit in call.unit.needs: open it, note the "
                "call in u.backward_calls if call.waiting is not 0, gather it. At the end count "
                "the open units among self.units; start the next only if there is exactly one.",
                """
                    self.prefetcher.needed("backward", call.unit)
                    for u in call.unit.needs:
                        u.open = True
                        if call.waiting:
                            u.backward_calls.add(call)
                        (now it must be here: wait for it)
                    if sum(u.open for u in self.units) == (how many?):
                        self.prefetcher.start_next("backward")
                """,
            ),
        ),
    ),
)
