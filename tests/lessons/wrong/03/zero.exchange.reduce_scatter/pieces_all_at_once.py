"""Asks for all pieces at once, so that the buffers grow with the tensor.

check: test_scatter_takes_little_room
mistake: all-at-once
"""


def reduce_scatter(mesh, ticket, flat, out, op, bounds=None):
    bounds = bounds or even_bounds(flat.numel(), mesh.size)
    start, end = bounds[mesh.rank]
    handles = [
        mesh.send(piece, peer, ticket.tag)
        for peer in mesh.peers
        for piece in in_pieces(flat[slice(*bounds[peer])])
    ]
    pending = []
    for own in in_pieces(flat[start:end]):
        rows = [own if r == mesh.rank else torch.empty_like(own) for r in range(mesh.size)]
        handles += [mesh.receive(rows[p], p, ticket.tag) for p in mesh.peers]
        pending.append(rows)

    def finish():
        mesh.settle(ticket)
        mesh.wait(handles, ticket)
        for rows, target in zip(pending, in_pieces(out)):
            add_in_rank_order(rows, target, op)

    return Work(out, [], finish), flat.element_size() * (flat.numel() - (end - start))
