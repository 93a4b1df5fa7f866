"""Sends every peer all of flat, and each keeps its part.

check: test_scatter_bytes
mistake: sends-everything
"""


def reduce_scatter(mesh, ticket, flat, out, op, bounds=None):
    bounds = bounds or even_bounds(flat.numel(), mesh.size)
    start, end = bounds[mesh.rank]
    handles = [mesh.send(flat, peer, ticket.tag) for peer in mesh.peers]

    def finish():
        mesh.settle(ticket)
        rows = [flat if r == mesh.rank else torch.empty_like(flat) for r in range(mesh.size)]
        mesh.wait([mesh.receive(rows[p], p, ticket.tag) for p in mesh.peers], ticket)
        if end > start:
            add_in_rank_order([row[start:end] for row in rows], out, op)
        mesh.wait(handles, ticket)

    return Work(out, [], finish), flat.element_size() * (flat.numel() - (end - start))
