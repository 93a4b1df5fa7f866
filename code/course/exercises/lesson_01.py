"""Lesson 01: one flat tensor, cut into shards."""

from course.registry import Exercise, Lesson

LESSON = Lesson(
    number=1,
    topic="flat",
    title="Flat",
    minutes=60,
    exercises=(
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
    ),
)
