"""test_exactly_once.py once more, by our own Kafka client: a ledger decides for both."""
import os, runpy

os.environ["PENSTOCK_BUS"] = "wire"
runpy.run_path(os.path.join(os.path.dirname(os.path.realpath(__file__)), "test_exactly_once.py"), run_name="__main__")
