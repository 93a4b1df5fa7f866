"""Counts 4 bytes an element, whatever the dtype.

check: test_gather_bytes
mistake: always-4-bytes
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
        mesh.settle(ticket)
        mesh.wait(handles, ticket)

    return Work(flat, [], finish), 4 * (end - start) * len(mesh.peers)
