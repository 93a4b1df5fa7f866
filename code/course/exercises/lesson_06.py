"""Lesson 06: activations recomputed, divided among tensor-parallel ranks, kept in a file."""

from course.registry import Exercise, Lesson

LESSON = Lesson(
    number=6,
    topic="activations",
    title="Activations: recompute, partition, offload",
    minutes=105,
    exercises=(
        Exercise(
            "zero.activations.recompute",
            minutes=20,
            difficulty=3,
            hints=(
                "Autograd switches the graph off while a backward function runs. What must be "
                "switched on for the second run, and what must be as it was in the first?",
                "Three moves. Run the block again with the graph on and under "
                "call.conditions.restored(), and take its tensors out of what it returns. Pair "
                "each output with its gradient, without the outputs that need none and without "
                "gradients that are None. Go backward through all pairs at once, if there are any, "
                "with torch.autograd.backward, which also fills the weights' .grad. The inputs' "
                "gradients are then in their .grad.",
                """
                    with torch.enable_grad(), call.conditions.restored():
                        outputs, _ = take_apart(call.run(...))
                    pairs = [(o, g) for o, g in zip(outputs, grads) if (both can take part)]
                    if pairs:
                        torch.autograd.backward(
                            [o for o, _ in pairs], (their gradients)
                        )
                    return [(the gradient that has arrived at x) for x in inputs]
                """,
            ),
        ),
        Exercise(
            "zero.partition.keep_part",
            minutes=10,
            difficulty=1,
            hints=(
                "If you return a slice of x.reshape(-1): how many bytes stay in memory, those of "
                "the slice or those of x?",
                "shard_bounds(x.numel(), M, r) gives the range, with M and r of the group. The "
                "range may run past the end of x; a slice of a tensor just stops there. Make a new "
                "tensor of zeros of the full length, of x's dtype, and copy into its beginning "
                "what there is.",
                """
                    start, end = shard_bounds(x.numel(), comm.world_size(group), ...)
                    own = x.reshape(-1)[start:end]
                    part = x.new_zeros(end - start)
                    part[: own.numel()] = ...
                    return part
                """,
            ),
        ),
        Exercise(
            "zero.partition.gather_parts",
            minutes=10,
            difficulty=2,
            hints=(
                "comm.all_gather works in place: where in the flat tensor must a rank's own part "
                "lie before the call, so that the parts come out in order?",
                "Make a flat tensor of M times the part's length and dtype. Put the own part at "
                "place r * length. All-gather over the group, with the name. The first "
                "shape.numel() elements are x, the rest is padding.",
                """
                    m, r = comm.world_size(group), comm.rank(group)
                    length = part.numel()
                    flat = part.new_empty(m * length)
                    flat[(this rank's range)] = part
                    comm.all_gather(flat, group=..., name=...)
                    return flat[: shape.numel()].view(shape)
                """,
            ),
        ),
        Exercise(
            "zero.activations.Call.restore",
            minutes=15,
            difficulty=2,
            hints=(
                "k.restore waits until its tensor is here. What should have been asked for before "
                "the first of these waits?",
                "First self.fetch(), then the fetch of self.previous, if there is one. Only then "
                "restore each Kept in self.kept. One of which autograd holds the tensor "
                "(k.held is None) gets the next tensor of `saved`, the others get None.",
                """
                    self.fetch()
                    if self.previous is not None:
                        (it may come, too)
                    rest = iter(saved)
                    restored = []
                    for k in self.kept:
                        tensor = next(rest) if k.held is None else None
                        restored.append(k.restore(tensor, ...))
                    return restored
                """,
            ),
        ),
    ),
)
