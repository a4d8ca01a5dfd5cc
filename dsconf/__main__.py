"""`python -m dsconf` is `dsconf`."""

from dsconf.cli import main

main(prog_name="dsconf")
