"""Lesson 01: one flat tensor, cut into shards."""

from course.registry import Exercise, Lesson

LESSON = Lesson(
    number=1,
    topic="flat",
    title="Flat",
    minutes=75,
    exercises=(
        Exercise(
            "zero.flat.flatten_params",
            minutes=10,
            difficulty=1,
            hints=(
                "Which method of a module gives every parameter once, in registration order, even "
                "if two modules share it? And what must happen to the shape of each?",
                "module.named_parameters() gives each parameter once. Bring each to one dimension, "
                "without its gradient history, and join them: torch.cat makes a new tensor, so the "
                "result is a copy.",
                """
                    named = list(module.named_parameters())
                    check_alike(named)          # raises for mixed dtypes and devices
                    return torch.cat([(each p, detached, as one dimension) for _, p in named])

                torch.cat refuses an empty list: a module without parameters needs a line of its
                own.
                """,
            ),
        ),
        Exercise(
            "zero.flat.unflatten_into",
            minutes=15,
            difficulty=2,
            hints=(
                "Which operations give a view, and which a copy? And how does a Parameter get "
                "other memory without becoming another object?",
                "Walk over the parameters with an offset. Each takes the next p.numel() elements "
                "of flat, as a view of its own shape, by p.data = ... Make all checks before the "
                "first change.",
                """
                    named = list(module.named_parameters())
                    check_alike(named)
                    (raise ValueError if flat.dim() is not 1, if flat.numel() is less than the
                    sum of all numels, or if the dtypes or devices differ)
                    offset = 0
                    for _, p in named:
                        p.data = flat[offset : (where?)].view((which shape?))
                        offset += (how many?)
                """,
            ),
        ),
        Exercise(
            "zero.flat.shard_bounds",
            minutes=10,
            difficulty=1,
            hints=(
                "How many elements does each rank own if 10 elements are cut for 4 ranks, and all "
                "ranks must own equally many? How many elements is that in all?",
                "All shards have one length: numel / world_size, rounded up. Rank r's shard begins "
                "where the shards of the r ranks before it end. Do not cut the last one short: "
                "what lies past numel is padding.",
                """
                Rounding up with integers: -(-a // b).

                    shard = -(-numel // world_size)
                    return (where rank begins), (where rank + 1 begins)

                Before that, raise ValueError if numel < 0, if world_size < 1, or if rank is not
                in range(world_size).
                """,
            ),
        ),
        Exercise(
            "zero.flat.FlatLayout.slices",
            minutes=20,
            difficulty=2,
            hints=(
                "A parameter lies at [span.start, span.end) of the flat tensor, the rank's range "
                "is [first, last). Where do the two overlap, and when not at all?",
                "The overlap begins at the larger of the two starts and ends at the smaller of the "
                "two ends. Count it once from the beginning of the parameter (start, end) and once "
                "from the beginning of the rank's range (offset).",
                """
                    first, last = shard_bounds(self.numel, self.world_size, rank)
                    found = []
                    for span in self.spans:
                        start, end = max(span.start, first), min((what?))
                        if (the overlap is not empty):
                            found.append(Slice(span.name, start - (?), end - (?), start - (?)))
                    return found
                """,
            ),
        ),
    ),
)
