"""`tokenweir.yaml`: its models, its one reader, its errors, its JSON Schema."""

from tokenweir.config.errors import ConfigError
from tokenweir.config.loading import load
from tokenweir.config.models import Config

__all__ = ["Config", "ConfigError", "load"]
