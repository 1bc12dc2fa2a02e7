"""`probe.py URL`: exit status 0 if the URL answers 200. For health checks, where there is no curl."""

import sys
import urllib.request

with urllib.request.urlopen(sys.argv[1], timeout=2) as answer:
    sys.exit(answer.status != 200)
