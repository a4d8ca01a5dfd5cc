"""How to start the script that uses a module."""

from __future__ import annotations

from dsconf.plan import Plan


def launch_lines(plan: Plan) -> list[str]:
    """The command for the machines that are known, as lines of the docstring; none where they are not."""
    world = plan.world
    if world is None:
        return []
    each = plan.launch.gpus_per_node
    if each is None or world <= each:
        where = " on one node" if each is None else ""
        return ["", f"For {world} ranks{where}:", "", f"    torchrun --nproc-per-node {world} train.py"]
    nodes = -(-world // each)
    host, port = plan.launch.host or "HOST", plan.launch.port or 29500
    meeting = f"--rdzv-backend c10d --rdzv-endpoint {host}:{port}"
    command = f"torchrun --nnodes {nodes} --nproc-per-node {each} {meeting}"
    return [
        "",
        f"For {world} ranks, on each of {nodes} nodes, {host} being one of them:",
        "",
        f"    {command} train.py",
        "",
        f"Under Slurm put srun --nodes {nodes} --ntasks-per-node 1 before it. Where nodes have several networks, set",
        "NCCL_SOCKET_IFNAME to the fast one's interface; NCCL_DEBUG=INFO shows which one NCCL took.",
    ]
