"""Ignores the bounds.

check: test_all_ranges_filled
mistake: not-filled
says: ranges of 1, 4 and 1 elements
"""


def all_gather(mesh, ticket, flat, bounds=None):
    bounds = even_bounds(flat.numel(), mesh.size)
    own = flat[slice(*bounds[mesh.rank])]
    parts = {p: flat[slice(*bounds[p])] for p in mesh.peers}
    handles = [mesh.receive(part, p, ticket.tag) for p, part in parts.items() if part.numel()]
    if own.numel():
        handles += [mesh.send(own, p, ticket.tag) for p in mesh.peers]

    def finish():
        mesh.settle(ticket)
        mesh.wait(handles, ticket)

    return Work(flat, [], finish), own.nbytes * len(mesh.peers)
