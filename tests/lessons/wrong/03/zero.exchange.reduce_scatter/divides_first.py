"""Divides every row before it is added, in the rows' own 16 bits.

check: test_parts_are_added_in_rank_order
mistake: divides-first
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
            rows = [own if r == mesh.rank else torch.empty_like(own) for r in range(mesh.size)]
            mesh.wait([mesh.receive(rows[p], p, ticket.tag) for p in mesh.peers], ticket)
            if op == "mean":
                rows = [row / mesh.size for row in rows]
            add_in_rank_order(rows, target, "sum" if op == "mean" else op)
        mesh.wait(sends, ticket)

    return Work(out, [], finish), flat.element_size() * (flat.numel() - (end - start))
