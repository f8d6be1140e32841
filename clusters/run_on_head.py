"""The `sweep` command on a cluster's own Ray, for `ray submit`, which copies this one file to the head.

Use: ray submit clusters/on-prem.yaml clusters/run_on_head.py -- run my.yaml
"""

import os
import sys

from sweep.cli import main

os.environ.setdefault("RAY_ADDRESS", "auto")
sys.exit(main())
