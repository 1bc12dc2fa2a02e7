"""`python -m tokenweir.render --config tokenweir.yaml`: writes the gateway's folder, prints the file."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tokenweir.config import ConfigError, load
from tokenweir.render import Paths, RenderError, write


def main(arguments: list[str] | None = None) -> int:
    """Render; 0 when done, 1 with the reason on stderr."""
    parser = argparse.ArgumentParser(prog="python -m tokenweir.render", description=__doc__)
    parser.add_argument("--config", type=Path, default=Path("tokenweir.yaml"))
    parser.add_argument("--state-dir", type=Path, help="instead of the configuration's state_dir")
    parser.add_argument("--user", default="www-data", help="who the workers are when the master is root")
    options = parser.parse_args(arguments)
    try:
        config = load(options.config)
        base = options.config.resolve().parent
        paths = Paths.under(options.state_dir or base / config.state_dir, options.user)
        print(write(config, paths, base))
    except (ConfigError, RenderError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
