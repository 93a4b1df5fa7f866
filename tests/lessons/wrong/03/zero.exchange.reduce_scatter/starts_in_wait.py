"""Starts everything in wait(), so that nothing travels before.

check: test_scatter_waits_late
mistake: starts-late
"""


def reduce_scatter(mesh, ticket, flat, out, op, bounds=None):
    bounds = bounds or even_bounds(flat.numel(), mesh.size)
    start, end = bounds[mesh.rank]

    def finish():
        mesh.settle(ticket)
        sends = [
            mesh.send(piece, p, ticket.tag)
            for p in mesh.peers
            for piece in in_pieces(flat[slice(*bounds[p])])
        ]
        for own, target in zip(in_pieces(flat[start:end]), in_pieces(out)):
            rows = [own if r == mesh.rank else torch.empty_like(own) for r in range(mesh.size)]
            mesh.wait([mesh.receive(rows[p], p, ticket.tag) for p in mesh.peers], ticket)
            add_in_rank_order(rows, target, op)
        mesh.wait(sends, ticket)

    return Work(out, [], finish), flat.element_size() * (flat.numel() - (end - start))
