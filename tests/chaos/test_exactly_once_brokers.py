"""The long leg of test_exactly_once.py: 100,000 records, about 750 a transaction, two scorers, three brokers of which some are killed."""
import os, runpy
os.environ.setdefault("LEDGER", "100000")
runpy.run_path(os.path.join(os.path.dirname(os.path.realpath(__file__)), "test_exactly_once.py"), run_name="__main__")
