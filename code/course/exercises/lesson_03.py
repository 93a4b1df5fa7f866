"""Lesson 03: reduce-scatter, all-gather, and what they send."""

from course.registry import Exercise, Lesson

LESSON = Lesson(
    number=3,
    topic="reduce_scatter",
    title="Reduce-scatter or all-reduce?",
    minutes=105,
    exercises=(
        Exercise(
            "zero.ring.ring_reduce_scatter",
            minutes=20,
            difficulty=3,
            hints=(
                "Four ranks. The sum of chunk 2 must end at rank 2 after three rounds. At which "
                "rank does it start? Then turn it round: with which chunk does rank r start?",
                "Rank r starts with a copy of its chunk r-1. What arrives in round 1 is the sum "
                "of the chunk before that, r-2: add your own chunk r-2 to it and pass that on. "
                "Always modulo N.",
                """
                    chunks = flat.chunk(world_size)
                    travelling = chunks[(rank - 1) % world_size].clone()
                    for round in range(1, world_size):
                        arrived = pass_on((what?))
                        travelling = arrived + chunks[(which?) % world_size]
                    return travelling
                """,
            ),
        ),
        Exercise(
            "zero.ring.ring_all_gather",
            minutes=10,
            difficulty=2,
            hints=(
                "You are rank 0 of 4. Whose shard arrives first, whose second, whose third?",
                "Pass on your own shard, then always what has just arrived. In round k the shard "
                "of rank r-k arrives (modulo N). Keep them by owner, and join them in rank order.",
                """
                    shards = {rank: shard}
                    travelling = shard
                    for round in range(1, world_size):
                        travelling = pass_on(travelling)
                        shards[(whose?)] = travelling
                    return torch.cat([shards[r] for r in (which order?)])
                """,
            ),
        ),
        Exercise(
            "zero.ring.naive_reduce_scatter",
            minutes=5,
            difficulty=1,
            hints=(
                "You have both halves of an all-reduce. In which order do they make one? And how "
                "much memory does a slice of a large tensor keep alive?",
                "Reduce-scatter, all-gather, then chunk `rank` of the whole: a copy of it, because "
                "a view would keep the whole sum alive.",
                """
                    own = ring_reduce_scatter(flat, rank, world_size, pass_on)
                    everything = (the other half, of own)
                    return (chunk number rank of everything, copied)
                """,
            ),
        ),
        Exercise(
            "zero.exchange.all_gather",
            minutes=15,
            difficulty=2,
            hints=(
                "What does rank 1 send to rank 0, and into which part of flat does rank 0 receive "
                "it? Which calls may block, and where must they stand?",
                "For every peer p: receive into flat[start:end] of p's bounds, and send it your "
                "own range. Collect the requests in a list. Only the function that you give to "
                "Work as `finish` settles and waits.",
                """
                    bounds = bounds or even_bounds(flat.numel(), mesh.size)
                    start, end = bounds[mesh.rank]
                    own, handles = flat[start:end], []
                    for peer in mesh.peers:
                        (receive flat[slice(*bounds[peer])], unless it is empty)
                        (send own, unless it is empty)

                    def finish():
                        mesh.settle(ticket)
                        mesh.wait(handles, ticket)

                    return Work(flat, [], finish), (bytes: own.nbytes for each peer)
                """,
            ),
        ),
        Exercise(
            "zero.exchange.reduce_scatter",
            minutes=25,
            difficulty=3,
            hints=(
                "Rank 1 of 3, parts of 10 elements, pieces of 4. How many messages does it send, "
                "how many does it receive, and which of them can be added together? When may it "
                "throw a received piece away?",
                "Send first, all of it: for every peer the pieces of that peer's part. In "
                "`finish`, after settling, take your own pieces one by one: make a new tensor for "
                "each peer, receive into them, wait, add the N rows in rank order into the same "
                "piece of out. At the very end wait for what you have sent.",
                """
                    bounds = bounds or even_bounds(flat.numel(), mesh.size)
                    start, end = bounds[mesh.rank]
                    handles = [(send piece to peer) for peer in mesh.peers
                               for piece in in_pieces(flat[slice(*bounds[peer])])]

                    def finish():
                        mesh.settle(ticket)
                        for own, target in zip(in_pieces(flat[start:end]), in_pieces(out)):
                            rows = [own if (mine?) else torch.empty_like(own)
                                    for r in range(mesh.size)]
                            mesh.wait([(receive rows[p] from p) for p in mesh.peers], ticket)
                            add_in_rank_order(rows, target, op)
                        mesh.wait(handles, ticket)

                    return Work((what?), [], finish), (bytes of all parts but your own)
                """,
            ),
        ),
    ),
)
