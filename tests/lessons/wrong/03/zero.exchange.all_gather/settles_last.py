"""Waits for the data first: if the ranks disagree, it never comes.

check: test_gather_waits_late
mistake: settles-late
"""


def all_gather(mesh, ticket, flat, bounds=None):
    bounds = bounds or even_bounds(flat.numel(), mesh.size)
    start, end = bounds[mesh.rank]
    own = flat[start:end]
    parts = {p: flat[slice(*bounds[p])] for p in mesh.peers}
    handles = [mesh.receive(part, p, ticket.tag) for p, part in parts.items() if part.numel()]
    if own.numel():
        handles += [mesh.send(own, p, ticket.tag) for p in mesh.peers]

    def finish():
        mesh.wait(handles, ticket)
        mesh.settle(ticket)

    return Work(flat, [], finish), own.nbytes * len(mesh.peers)
