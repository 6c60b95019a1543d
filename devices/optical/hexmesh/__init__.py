"""Model of a programmable photonic mesh: where its cells are, where light goes, how to route.

The vendor's geometry and port numbering are not published. This is a model of our own with the
published number of cells (72) and enough ports for the published port numbers (0 to 37).
"""

from devices.optical.hexmesh.geometry import Arm, HexMesh
from devices.optical.hexmesh.propagation import Arrival, propagate
from devices.optical.hexmesh.router import NoRouteError, Route, Router, Routing

__all__ = [
    "Arm",
    "Arrival",
    "HexMesh",
    "NoRouteError",
    "Route",
    "Router",
    "Routing",
    "propagate",
]
