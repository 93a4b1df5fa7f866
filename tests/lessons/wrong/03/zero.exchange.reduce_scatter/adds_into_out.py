"""Adds what arrives to out, one peer after the other: rounds each time, and begins with its own.

check: test_parts_are_added_in_rank_order
mistake: own-first or rounded-first
"""


def reduce_scatter(mesh, ticket, flat, out, op, bounds=None):
    bounds = bounds or even_bounds(flat.numel(), mesh.size)
    start, end = bounds[mesh.rank]
    handles = [
        mesh.send(piece, peer, ticket.tag)
        for peer in mesh.peers
        for piece in in_pieces(flat[slice(*bounds[peer])])
    ]

    def finish():
        mesh.settle(ticket)
        for own, target in zip(in_pieces(flat[start:end]), in_pieces(out)):
            rows = [own if r == mesh.rank else torch.empty_like(own) for r in range(mesh.size)]
            mesh.wait([mesh.receive(rows[p], p, ticket.tag) for p in mesh.peers], ticket)
            target.copy_(own)
            for p in mesh.peers:
                target.add_(rows[p])
            if op == "mean":
                target.div_(mesh.size)
        mesh.wait(handles, ticket)

    return Work(out, [], finish), flat.element_size() * (flat.numel() - (end - start))
