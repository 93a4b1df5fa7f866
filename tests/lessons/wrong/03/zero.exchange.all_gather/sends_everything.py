"""Sends the whole of flat to every peer.

check: test_gather_bytes
mistake: sends-everything
"""


def all_gather(mesh, ticket, flat, bounds=None):
    bounds = bounds or even_bounds(flat.numel(), mesh.size)
    own = flat[slice(*bounds[mesh.rank])]
    copies = {p: torch.empty_like(flat) for p in mesh.peers}
    handles = [mesh.receive(copy, p, ticket.tag) for p, copy in copies.items()]
    handles += [mesh.send(flat.clone(), p, ticket.tag) for p in mesh.peers]

    def finish():
        mesh.settle(ticket)
        mesh.wait(handles, ticket)
        for p, copy in copies.items():
            part = slice(*bounds[p])
            flat[part] = copy[part]

    return Work(flat, [], finish), own.nbytes * len(mesh.peers)
