"""penstock from Python: log() in a learner, Client for whoever submits, watches and ends jobs over the gateway's HTTP. Standard library only."""
from .client import Client, PenstockError, Rejected
from .learner import log

__all__ = ["Client", "PenstockError", "Rejected", "log"]
__version__ = "0.1.0"
