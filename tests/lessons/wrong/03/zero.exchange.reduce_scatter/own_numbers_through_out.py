"""Takes its own numbers from out, which may have fewer digits.

check: test_parts_are_added_in_rank_order
mistake: rounded-first
"""


def reduce_scatter(mesh, ticket, flat, out, op, bounds=None):
    bounds = bounds or even_bounds(flat.numel(), mesh.size)
    start, end = bounds[mesh.rank]
    sends = [
        mesh.send(piece, p, ticket.tag)
        for p in mesh.peers
        for piece in in_pieces(flat[slice(*bounds[p])])
    ]

    def finish():
        mesh.settle(ticket)
        for own, target in zip(in_pieces(flat[start:end]), in_pieces(out)):
            target.copy_(own)
            rows = [target if r == mesh.rank else torch.empty_like(own) for r in range(mesh.size)]
            mesh.wait([mesh.receive(rows[p], p, ticket.tag) for p in mesh.peers], ticket)
            add_in_rank_order(rows, target, op)
        mesh.wait(sends, ticket)

    return Work(out, [], finish), flat.element_size() * (flat.numel() - (end - start))
