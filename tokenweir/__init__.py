"""What every part of Tokenweir shares: configuration, the Redis contract, the command line."""
