"""Sends and receives whole parts: the buffers grow with the tensor.

check: test_scatter_takes_little_room
mistake: all-at-once
"""


def reduce_scatter(mesh, ticket, flat, out, op, bounds=None):
    bounds = bounds or even_bounds(flat.numel(), mesh.size)
    start, end = bounds[mesh.rank]
    own = flat[start:end]
    parts = {p: flat[slice(*bounds[p])] for p in mesh.peers}
    handles = [mesh.send(part, p, ticket.tag) for p, part in parts.items() if part.numel()]
    rows = [own if r == mesh.rank else torch.empty_like(own) for r in range(mesh.size)]
    if own.numel():
        handles += [mesh.receive(rows[p], p, ticket.tag) for p in mesh.peers]

    def finish():
        mesh.settle(ticket)
        mesh.wait(handles, ticket)
        if own.numel():
            add_in_rank_order(rows, out, op)

    return Work(out, [], finish), flat.element_size() * (flat.numel() - (end - start))
