"""``bin/mqbroker`` that cleans mappings every second; its ``deleteWhen`` says at which hours."""

from __future__ import annotations

from rmqha.broker.logical.aio import cleaning
from rmqha.cli.mqbroker import main

cleaning.PERIOD_MS = 1_000

if __name__ == "__main__":
    main()
